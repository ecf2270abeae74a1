// SPDX-License-Identifier: MIT
// The JSON header of a safetensors file, read by events so that nothing is kept that the format
// does not allow: duplicate keys, numbers that are no unsigned integers, other types.
// Not for: offsets and sizes, which io/safetensors.hpp checks once it has all entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::io::detail {

/// One entry as it stands in the header, nothing of it believed yet.
struct RawEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
};

/// nlohmann's SAX interface; each member returns false, with `error` set, to stop.
///
/// Fields of an entry that the format does not name are skipped whatever they hold, and a null
/// __metadata__ is none, since the reference reader (serde) does both.
class SafetensorsHeader {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  std::vector<RawEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string error;

  bool null() {
    if (in_ == In::top_value && is_metadata_) {
      in_ = In::top;
      return true;
    }
    return value("null");
  }
  bool boolean(bool) { return value("a boolean"); }
  bool number_integer(number_integer_t n) { return value(core::text("the number ", n)); }
  bool number_float(number_float_t, const string_t& text) {
    return value(core::text("the number ", text));
  }
  bool number_unsigned(number_unsigned_t n) {
    if (in_ == In::list) {
      list_->push_back(n);
      return true;
    }
    return value(core::text("the number ", n));
  }
  bool string(string_t& text) {
    if (in_ == In::metadata_value) {
      metadata[key_] = std::move(text);
      in_ = In::metadata;
      return true;
    }
    if (in_ == In::field_value && key_ == "dtype") {
      entries.back().dtype = std::move(text);
      in_ = In::entry;
      return true;
    }
    return value("a string");
  }
  bool binary(binary_t&) { return value("binary"); }

  bool start_object(std::size_t) {
    if (in_ == In::start) return enter(In::top);
    if (in_ == In::top_value) {
      keys_.clear();
      return enter(is_metadata_ ? In::metadata : In::entry);
    }
    return nest("an object");
  }
  bool key(string_t& text) {
    if (in_ == In::skip) return true;
    if (in_ == In::top) {
      if (!names_.insert(text).second) return fail("the name '", text, "' is there twice");
      is_metadata_ = text == "__metadata__";
      if (!is_metadata_) entries.push_back({text, {}, {}, {}});
      return enter(In::top_value);
    }
    if (!keys_.insert(text).second) {
      return fail("the key '", text, "' is there twice in ", where());
    }
    key_ = text;
    return enter(in_ == In::metadata ? In::metadata_value : In::field_value);
  }
  bool end_object() {
    if (in_ == In::skip) return leave();
    if (in_ == In::entry) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (keys_.count(field) == 0) return fail(where(), " has no ", field);
      }
      if (entries.back().offsets.size() != 2) {
        return fail(where(), " has ", entries.back().offsets.size(),
                    " data_offsets, but needs begin and end");
      }
    }
    return enter(in_ == In::top ? In::end : In::top);
  }
  bool start_array(std::size_t) {
    if (in_ == In::field_value && (key_ == "shape" || key_ == "data_offsets")) {
      list_ = key_ == "shape" ? &entries.back().shape : &entries.back().offsets;
      return enter(In::list);
    }
    return nest("a list");
  }
  bool end_array() {
    if (in_ == In::skip) return leave();
    return enter(In::entry);
  }
  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception& exception) {
    if (error.empty()) fail("no JSON at byte ", position, " of the header: ", exception.what());
    return false;
  }

 private:
  enum class In { start, top, top_value, metadata, metadata_value, entry, field_value, list, skip,
                  end };

  bool enter(In in) {
    in_ = in;
    return true;
  }
  template <class... Parts>
  bool fail(const Parts&... parts) {
    error = core::text(parts...);
    return false;
  }
  [[nodiscard]] std::string where() const {
    return is_metadata_ ? std::string("__metadata__")
                        : core::text("the entry '", entries.back().name, "'");
  }
  [[nodiscard]] bool unknown_field() const {
    return in_ == In::field_value && key_ != "dtype" && key_ != "shape" && key_ != "data_offsets";
  }
  /// A value that nothing above took.
  bool value(std::string_view what) {
    if (in_ == In::skip) return true;
    if (unknown_field()) return enter(In::entry);
    return unwanted(what);
  }
  bool nest(std::string_view what) {
    if (in_ == In::skip || unknown_field()) {
      in_ = In::skip;
      // The reference reader stops at 128 levels; two stand outside this value.
      if (++depth_ > 126) return fail(where(), " is nested too deep");
      return true;
    }
    return unwanted(what);
  }
  bool leave() {
    if (--depth_ == 0) in_ = In::entry;
    return true;
  }
  bool unwanted(std::string_view what) {
    switch (in_) {
      case In::start: return fail("the header is ", what, ", but must be an object");
      case In::top_value:
        return fail(where(), " is ", what, ", but must be an object");
      case In::metadata_value:
        return fail("__metadata__ '", key_, "' is ", what, ", but must be a string");
      case In::list:
        return fail(key_, " of ", where(), " holds ", what,
                    ", but may hold only unsigned integers below 2^64");
      default: return fail(key_, " of ", where(), " is ", what);
    }
  }

  In in_ = In::start;
  bool is_metadata_ = false;
  int depth_ = 0;
  std::string key_;
  std::set<std::string> names_;
  std::set<std::string> keys_;
  std::vector<std::uint64_t>* list_ = nullptr;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::io::detail
