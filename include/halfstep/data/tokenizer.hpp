// SPDX-License-Identifier: MIT
// Text to token numbers and back: every byte, the distinct characters of one text, or the numbers
// themselves. Not for: sub-word vocabularies, or cutting tokens into batches (data/text.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/file.hpp>
#include <halfstep/data/utf8.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::data {

enum class TokenizerKind {
  character,  ///< the distinct characters of the training file, as nanoGPT's shakespeare_char
  byte,       ///< all 256 bytes: any input can be encoded
};

/// A vocabulary of single symbols in ascending order; token i is symbol i.
///
/// A symbol is a code point, or a byte: always a byte for TokenizerKind::byte, and for characters
/// when the text they were collected from is not UTF-8. Or a number, where tokens come without a
/// text: then "12 7 " is the text of two. Immutable; safe to share between threads.
class Tokenizer {
 public:
  enum class Unit { byte, code_point, number };

  /// All 256 bytes; token i is byte i.
  [[nodiscard]] static Tokenizer bytes() {
    std::vector<char32_t> symbols(256);
    for (std::size_t i = 0; i < 256; ++i)
      symbols[i] = static_cast<char32_t>(i);
    return {Unit::byte, std::move(symbols)};
  }

  /// The distinct characters of a text: its code points, or its bytes if it is not UTF-8.
  /// @throws DataError if the text is empty.
  [[nodiscard]] static Tokenizer characters(std::string_view text) {
    if (text.empty()) {
      core::fail<DataError>(
          "Tokenizer::characters: the text is empty, so it has no characters. "
          "Is it the right file?");
    }
    const Unit unit = utf8_valid_until(text) == text.size() ? Unit::code_point : Unit::byte;
    std::vector<bool> seen(unit == Unit::byte ? 256 : 0x110000);
    for (std::size_t at = 0; at < text.size();)
      seen[take(unit, text, at)] = true;
    std::vector<char32_t> symbols;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (seen[i]) symbols.push_back(static_cast<char32_t>(i));
    }
    return {unit, std::move(symbols)};
  }

  /// Token i is the number i, in decimal. @throws OptionError unless 1 <= vocabulary <= 2^24.
  [[nodiscard]] static Tokenizer numbers(int vocabulary) {
    if (vocabulary < 1 || vocabulary > 1 << 24) {
      core::fail<OptionError>("Tokenizer::numbers: a vocabulary of ", vocabulary,
                              "; wanted 1 to 2^24. Are the tokens of another width than they were "
                              "read with?");
    }
    std::vector<char32_t> symbols(static_cast<std::size_t>(vocabulary));
    for (std::size_t i = 0; i < symbols.size(); ++i)
      symbols[i] = static_cast<char32_t>(i);
    return {Unit::number, std::move(symbols)};
  }

  [[nodiscard]] static Tokenizer of(TokenizerKind kind, std::string_view text) {
    return kind == TokenizerKind::byte ? bytes() : characters(text);
  }

  [[nodiscard]] Unit unit() const { return unit_; }
  [[nodiscard]] int vocabulary() const { return static_cast<int>(symbols_.size()); }
  /// Code points or byte values, ascending, by token.
  [[nodiscard]] std::span<const char32_t> symbols() const { return symbols_; }

  /// The token of the newline, if there is one: where a text begins that nobody has begun.
  [[nodiscard]] std::optional<std::int32_t> newline() const {
    const std::int32_t token = unit_ == Unit::number ? -1 : find(U'\n');
    return token < 0 ? std::nullopt : std::optional(token);
  }

  /// @throws DataError with the offset for a character that is not in the vocabulary, or bytes
  /// that are no UTF-8 where the symbols are code points, or no numbers where they are numbers.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> tokens;
    tokens.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      if (unit_ == Unit::number && (text[at] == ' ' || text[at] == '\n')) {
        ++at;
        continue;
      }
      const std::size_t start = at;
      const char32_t symbol = take(unit_, text, at);
      const std::int32_t token = find(symbol);
      if (token < 0) {
        core::fail<DataError>("Tokenizer::encode: ", name(symbol), " at byte ", start,
                              " is not one of the ", vocabulary(), " symbols of the vocabulary. ",
                              "It does not occur in the text the vocabulary was made from; leave "
                              "it out, or train with the byte tokenizer.");
      }
      tokens.push_back(token);
    }
    tokens.shrink_to_fit();  // reserve was up to 4 times too much, where characters are long
    return tokens;
  }

  /// The bytes of the tokens, joined: encode's inverse. With byte symbols the result need not be
  /// UTF-8; to show a text while it comes, use StreamDecoder.
  /// @throws DataError with the position for a token out of range.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const {
    std::string text;
    text.reserve(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      require_token("Tokenizer::decode", tokens[i], i);
      append(text, tokens[i]);
    }
    return text;
  }

  /// How many bytes of text the tokens stand for: the divisor of bits per byte. 0 for numbers, of
  /// which nobody knows.
  /// @throws DataError with the position for a token out of range.
  [[nodiscard]] std::int64_t count_bytes(std::span<const std::int32_t> tokens) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      require_token("Tokenizer::count_bytes", tokens[i], i);
      const char32_t c = symbols_[static_cast<std::size_t>(tokens[i])];
      if (unit_ == Unit::number) continue;
      sum += unit_ == Unit::byte || c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    }
    return sum;
  }

  /// A text file of its own: a first line "halfstep-tokenizer 1 UNIT COUNT", UNIT byte,
  /// code_point or number, then one symbol a line as a lower-case hexadecimal number, ascending.
  [[nodiscard]] std::string serialise() const {
    std::string out = core::text(kMagic, name_of(unit_), vocabulary(), "\n");
    for (const char32_t symbol : symbols_)
      out += hexadecimal(symbol) + "\n";
    return out;
  }

  /// @throws FileError with the line for anything serialise() does not write.
  [[nodiscard]] static Tokenizer parse(std::string_view file, std::string_view source = "text") {
    std::size_t line = 0;
    const auto bad = [&](const auto&... why) {
      core::fail<FileError>("Tokenizer::parse: ", source, ", line ", line, ": ", why...,
                            ". Was the file written by Tokenizer::save, and whole?");
    };
    const auto next_line = [&] {
      ++line;
      const std::size_t end = file.find('\n');
      if (end == std::string_view::npos) bad("the file ends here, without a newline");
      const std::string_view result = file.substr(0, end);
      file.remove_prefix(end + 1);
      return result;
    };
    std::string_view head = next_line();
    if (!head.starts_with(kMagic)) bad("wanted '", kMagic, "UNIT COUNT'");
    head.remove_prefix(kMagic.size());
    Unit unit = Unit::byte;
    if (head.starts_with(name_of(Unit::code_point))) unit = Unit::code_point;
    if (head.starts_with(name_of(Unit::number))) unit = Unit::number;
    if (!head.starts_with(name_of(unit))) bad("the unit is neither byte nor code_point nor number");
    head.remove_prefix(name_of(unit).size());
    std::uint32_t count = 0;
    const char32_t limit = unit == Unit::byte ? 0x100 : unit == Unit::number ? 1 << 24 : 0x110000;
    if (!number(head, 10, count) || count == 0 || count > limit) {
      bad("'", head, "' is no count of symbols");
    }
    std::vector<char32_t> symbols;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::string_view text = next_line();
      std::uint32_t symbol = 0;
      if (!number(text, 16, symbol) || symbol >= limit ||
          (unit == Unit::code_point && symbol >= 0xD800 && symbol <= 0xDFFF)) {
        bad("'", text, "' is no symbol");
      }
      if (!symbols.empty() && symbols.back() >= symbol) bad("symbols are not in ascending order");
      if (unit == Unit::number && symbol != i) bad("number ", i, " is missing");
      symbols.push_back(static_cast<char32_t>(symbol));
    }
    ++line;
    if (!file.empty()) bad("more follows after ", count, " symbols");
    return {unit, std::move(symbols)};
  }

  /// @throws FileError if the file cannot be written; then an old one is as it was.
  void save(const std::string& path) const { core::write_file_atomically(path, serialise()); }
  /// @throws FileError if the file cannot be read or is not what save() writes.
  [[nodiscard]] static Tokenizer load(const std::string& path) {
    return parse(core::read_whole_file(path), core::text("'", path, "'"));
  }

  friend bool operator==(const Tokenizer& a, const Tokenizer& b) {
    return a.unit_ == b.unit_ && a.symbols_ == b.symbols_;
  }

 private:
  friend class StreamDecoder;
  static constexpr std::string_view kMagic = "halfstep-tokenizer 1 ";

  Tokenizer(Unit unit, std::vector<char32_t> symbols) : unit_(unit), symbols_(std::move(symbols)) {
    direct_.fill(-1);
    for (std::size_t i = 0; i < symbols_.size() && symbols_[i] < direct_.size(); ++i) {
      direct_[symbols_[i]] = static_cast<std::int32_t>(i);
    }
  }

  /// The symbol at `at`, which moves behind it.
  [[nodiscard]] static char32_t take(Unit unit, std::string_view text, std::size_t& at) {
    if (unit == Unit::byte) return static_cast<unsigned char>(text[at++]);
    if (unit == Unit::number) {
      std::uint32_t value = 0;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
      if (error != std::errc()) {
        core::fail<DataError>(
            "Tokenizer::encode: no token number at byte ", at,
            ". The vocabulary is of numbers: write them in decimal, with spaces.");
      }
      at = static_cast<std::size_t>(end - text.data());
      return static_cast<char32_t>(value);
    }
    const Utf8Front front = utf8_front(text.substr(at));
    if (front.kind != Utf8Front::Kind::whole) {
      core::fail<DataError>("Tokenizer::encode: the text is not UTF-8 at byte ", at,
                            ", but the vocabulary is of UTF-8 characters. Convert it, or train "
                            "with the byte tokenizer.");
    }
    at += front.bytes;
    return front.code_point;
  }

  [[nodiscard]] std::int32_t find(char32_t symbol) const {
    if (symbol < direct_.size()) return direct_[symbol];
    const auto at = std::lower_bound(symbols_.begin(), symbols_.end(), symbol);
    return at == symbols_.end() || *at != symbol ? -1
                                                 : static_cast<std::int32_t>(at - symbols_.begin());
  }

  void append(std::string& text, std::int32_t token) const {
    const char32_t symbol = symbols_[static_cast<std::size_t>(token)];
    if (unit_ == Unit::byte) {
      text += static_cast<char>(static_cast<unsigned char>(symbol));
    } else if (unit_ == Unit::number) {
      text += core::text(token, ' ');
    } else {
      append_utf8(text, symbol);
    }
  }

  void require_token(std::string_view function, std::int32_t token, std::size_t position) const {
    if (token < 0 || token >= vocabulary()) {
      core::fail<DataError>(function, ": token ", token, " at position ", position,
                            " is not in [0, ", vocabulary(),
                            "). Do the tokens come from another vocabulary?");
    }
  }

  [[nodiscard]] static std::string_view name_of(Unit unit) {
    return unit == Unit::byte ? "byte " : unit == Unit::number ? "number " : "code_point ";
  }

  [[nodiscard]] std::string name(char32_t symbol) const {
    if (unit_ == Unit::number) return core::text("token ", static_cast<std::uint32_t>(symbol));
    std::string out = unit_ == Unit::byte ? "byte 0x" : "character U+";
    out += hexadecimal(symbol);
    if (symbol >= 0x20 && symbol != 0x7F && (unit_ == Unit::code_point || symbol < 0x7F)) {
      out += " '";
      append_utf8(out, symbol);
      out += "'";
    }
    return out;
  }

  [[nodiscard]] static std::string hexadecimal(char32_t value) {
    char buffer[8];
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, static_cast<std::uint32_t>(value), 16).ptr;
    return {buffer, end};
  }

  /// Strict: from_chars takes all of it, and it is how hexadecimal() or text() would print it.
  [[nodiscard]] static bool number(std::string_view text, int base, std::uint32_t& value) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return result.ec == std::errc() && result.ptr == text.data() + text.size() &&
           (text.size() == 1 || text.front() != '0');
  }

  Unit unit_;
  std::vector<char32_t> symbols_;
  std::array<std::int32_t, 0x800> direct_{};  ///< tokens of one- and two-byte characters, or -1
};

/// Tokens in, one at a time; valid UTF-8 out (see Utf8Stream). Keeps its own copy of the tokenizer.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  /// What can be shown now that this token has come; empty inside a character.
  /// @throws DataError for a token out of range.
  [[nodiscard]] std::string push(std::int32_t token) {
    tokenizer_.require_token("StreamDecoder::push", token, position_);
    ++position_;
    std::string bytes;
    tokenizer_.append(bytes, token);
    return stream_.push(bytes);
  }
  /// What was held back at the end of the text, as U+FFFD, or nothing.
  [[nodiscard]] std::string finish() { return stream_.finish(); }

 private:
  Tokenizer tokenizer_;
  Utf8Stream stream_;
  std::size_t position_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::data
