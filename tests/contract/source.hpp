// SPDX-License-Identifier: MIT
// Reads C++ text as far as the house's rules need it: comments and literals blanked, directives and
// includes with their lines, variables that can change at namespace scope. Not a parser of C++: it
// knows declarations as they are written here. Used by the contract tests alone.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace contract {

struct Directive {
  int line = 0;
  bool indented = false;
  std::string name;  ///< "include", "ifdef", …
  std::string rest;  ///< what follows the name, trimmed, literals kept
};

struct Found {
  int line = 0;
  std::string text;
};

inline bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// `text` of the same length and with the same line ends, comments replaced by blanks, and, if
/// asked, the inside of strings and characters too.
inline std::string blanked(std::string_view text, bool blank_literals) {
  std::string out(text);
  const auto wipe = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end && i < out.size(); ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
  };
  std::size_t i = 0;
  while (i < text.size()) {
    if (text.substr(i, 2) == "//") {
      std::size_t end = i;
      while (end < text.size() && (text[end] != '\n' || text[end - 1] == '\\'))
        ++end;
      wipe(i, end);
      i = end;
    } else if (text.substr(i, 2) == "/*") {
      std::size_t end = text.find("*/", i + 2);
      end = end == std::string_view::npos ? text.size() : end + 2;
      wipe(i, end);
      i = end;
    } else if (text[i] == '"' && i > 0 && text[i - 1] == 'R') {
      const std::size_t open = text.find('(', i);
      if (open == std::string_view::npos) break;
      const std::string close = ")" + std::string(text.substr(i + 1, open - i - 1)) + "\"";
      std::size_t end = text.find(close, open);
      end = end == std::string_view::npos ? text.size() : end + close.size();
      if (blank_literals) wipe(i + 1, end - 1);
      i = end;
    } else if (text[i] == '"' || text[i] == '\'') {
      if (text[i] == '\'') {
        // 0x3F80'8000: a quote inside a run of word characters that starts with a digit.
        std::size_t start = i;
        while (start > 0 && (is_word(text[start - 1]) || text[start - 1] == '\''))
          --start;
        if (start < i && std::isdigit(static_cast<unsigned char>(text[start])) != 0) {
          ++i;
          continue;
        }
      }
      const char quote = text[i];
      std::size_t end = i + 1;
      while (end < text.size() && text[end] != quote && text[end] != '\n') {
        end += text[end] == '\\' ? 2U : 1U;
      }
      if (blank_literals) wipe(i + 1, end);
      i = end + 1;
    } else {
      ++i;
    }
  }
  return out;
}

/// The preprocessor's lines, continuations joined. Comments are blanked first.
inline std::vector<Directive> directives(std::string_view source) {
  const std::string text = blanked(source, false);
  std::vector<Directive> found;
  int line = 1;
  std::size_t at = 0;
  while (at < text.size()) {
    const int first_line = line;
    std::string joined;
    for (;;) {
      std::size_t end = text.find('\n', at);
      if (end == std::string::npos) end = text.size();
      joined += text.substr(at, end - at);
      at = end + 1;
      ++line;
      if (joined.empty() || joined.back() != '\\' || at >= text.size()) break;
      joined.pop_back();
    }
    const std::size_t hash = joined.find_first_not_of(" \t");
    if (hash == std::string::npos) continue;
    std::size_t i = hash;
    if (joined[i] == '#') {
      i += 1;
    } else if (joined.substr(i, 2) == "%:") {
      i += 2;
    } else {
      continue;
    }
    const std::size_t name = joined.find_first_not_of(" \t", i);
    if (name == std::string::npos) continue;
    std::size_t end = name;
    while (end < joined.size() && is_word(joined[end]))
      ++end;
    Directive directive{first_line, hash > 0 || name > i, joined.substr(name, end - name), ""};
    const std::size_t rest = joined.find_first_not_of(" \t", end);
    if (rest != std::string::npos) {
      directive.rest = joined.substr(rest, joined.find_last_not_of(" \t\r") + 1 - rest);
    }
    found.push_back(directive);
  }
  return found;
}

struct Token {
  std::string text;
  int line = 0;
};

/// Words and single punctuation marks ("::" is one mark) outside comments, literals and directives.
inline std::vector<Token> tokens(std::string_view source) {
  std::string text = blanked(source, true);
  std::size_t at = 0;
  while (at < text.size()) {  // directives away, with their continuations
    std::size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    const std::size_t first = text.find_first_not_of(" \t", at);
    if (first < end && (text[first] == '#' || text.compare(first, 2, "%:") == 0)) {
      while (end < text.size() && text[end - 1] == '\\') {
        text[end - 1] = ' ';
        end = text.find('\n', end + 1);
        if (end == std::string::npos) end = text.size();
      }
      for (std::size_t i = at; i < end; ++i) {
        if (text[i] != '\n') text[i] = ' ';
      }
    }
    at = end + 1;
  }
  std::vector<Token> found;
  int line = 1;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      ++i;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++i;
    } else if (is_word(c)) {
      std::size_t end = i;
      while (end < text.size() && (is_word(text[end]) || text[end] == '\''))
        ++end;
      found.push_back({text.substr(i, end - i), line});
      i = end;
    } else if (text.compare(i, 2, "::") == 0) {
      found.push_back({"::", line});
      i += 2;
    } else {
      found.push_back({std::string(1, c), line});
      ++i;
    }
  }
  return found;
}

/// Variables that outlive a call and can change: at namespace scope, static members of a class,
/// static or thread_local locals. `static const` and constexpr are none of them.
class MutableState {
 public:
  explicit MutableState(std::string_view source) : tokens_(tokens(source)) { scope(Kind::space); }
  [[nodiscard]] const std::vector<Found>& found() const { return found_; }

 private:
  enum class Kind { space, type, body };
  using Statement = std::vector<Token>;

  [[nodiscard]] bool at_end() const { return at_ >= tokens_.size(); }
  [[nodiscard]] const std::string& now() const { return tokens_[at_].text; }

  /// The index after the bracket that closes the one at `open`.
  static std::size_t after(const Statement& s, std::size_t open, const char* left,
                           const char* right) {
    int depth = 0;
    for (std::size_t i = open; i < s.size(); ++i) {
      if (s[i].text == left) ++depth;
      if (s[i].text == right && --depth == 0) return i + 1;
      if (s[i].text == "(" && *left == '<') i = after(s, i, "(", ")") - 1;
    }
    return s.size();
  }

  /// Without attributes, template headers, our region macros: what is left starts with the type.
  static Statement stripped(const Statement& s) {
    Statement out;
    for (std::size_t i = 0; i < s.size();) {
      const std::string& t = s[i].text;
      const bool call = i + 1 < s.size() && s[i + 1].text == "(";
      if (t == "[" && i + 1 < s.size() && s[i + 1].text == "[") {
        i = after(s, i, "[", "]");
      } else if (t == "template" && i + 1 < s.size() && s[i + 1].text == "<") {
        i = after(s, i + 1, "<", ">");
      } else if (call && (t == "__attribute__" || t == "alignas" || t == "decltype" ||
                          t == "noexcept" || t == "explicit" || t == "HALFSTEP_BEGIN_TARGET")) {
        i = after(s, i + 1, "(", ")");
      } else if (t == "HALFSTEP_END_TARGET" || t == "HALFSTEP_NOINLINE") {
        ++i;
      } else {
        out.push_back(s[i++]);
      }
    }
    return out;
  }

  struct Shape {
    bool equals = false;  ///< an = outside brackets, before any brace
    bool parens = false;  ///< a ( outside brackets, before that =
    bool op = false;
    bool type = false;  ///< class, struct, union or enum, outside brackets
    bool constant = false;
    bool stat = false;
  };

  static Shape shape(const Statement& s) {
    Shape out;
    for (std::size_t i = 0; i < s.size(); ++i) {
      const std::string& t = s[i].text;
      if (t == "operator") out.op = true;
      if (t == "static" || t == "thread_local") out.stat = true;
      if (t == "constexpr") out.constant = true;
      if (t == "const") out.constant = true;
      if (t == "*" && !out.equals && !out.parens) out.constant = false;  // a pointer that can move
      if (t == "thread_local") out.constant = false;
      if (t == "class" || t == "struct" || t == "union" || t == "enum") out.type = true;
      if (t == "=" && !out.op) {
        out.equals = true;
        break;
      }
      if (t == "(") {
        out.parens = true;
        i = after(s, i, "(", ")") - 1;
      } else if (t == "<" && !out.op && i > 0 && is_word(s[i - 1].text.front())) {
        i = after(s, i, "<", ">") - 1;
      } else if (t == "{") {
        break;
      }
    }
    for (const Token& t : s) {
      if (t.text == "constexpr") out.constant = true;  // even with a * behind it
    }
    return out;
  }

  void report(const Statement& s) {
    std::string text;
    for (std::size_t i = 0; i < s.size() && i < 8; ++i)
      text += (i == 0 ? "" : " ") + s[i].text;
    found_.push_back({s.front().line, text});
  }

  void judge(Kind kind, const Statement& raw, bool after_type) {
    const Statement s = stripped(raw);
    if (s.empty()) return;
    const Shape is = shape(s);
    if (kind != Kind::space) {
      if (!is.stat || is.constant) return;
      if (kind == Kind::type && (is.op || (is.parens && s.front().text != "thread_local"))) return;
      if (s.front().text == "static_assert") return;
      report(s);
      return;
    }
    if (after_type) {  // struct X { … } x;
      report(s);
      return;
    }
    static const char* const harmless[] = {"using",    "typedef", "static_assert", "friend",
                                           "template", "concept", "namespace",     "requires"};
    for (const char* word : harmless) {
      if (s.front().text == word) return;
    }
    if (is.op || is.constant) return;
    if (s.front().text == "extern" && s.size() > 1 && s[1].text == "template") return;
    if (!is.equals && is.parens) return;                                               // a function
    if (is.type && !is.equals && (s.size() <= 2 || s.front().text == "enum")) return;  // struct X;
    if (s.size() < 2) return;
    report(s);
  }

  /// Skips a brace that belongs to an expression, keeping its end as the statement's last token.
  void skip_braces(Statement& s) {
    int depth = 0;
    do {
      if (now() == "{") ++depth;
      if (now() == "}") --depth;
      ++at_;
    } while (depth > 0 && !at_end());
    s.push_back({"}", s.empty() ? 0 : s.back().line});
  }

  void scope(Kind kind) {
    Statement s;
    bool after_type = false;
    int parens = 0;
    while (!at_end()) {
      const std::string& t = now();
      if (t == "(") ++parens;
      if (t == ")") --parens;
      if (t == "}" && parens <= 0) {
        ++at_;
        return;
      }
      if (t == ";" && parens <= 0) {
        judge(kind, s, after_type);
        s.clear();
        after_type = false;
        ++at_;
      } else if (kind == Kind::type && t == ":" && s.size() == 1 &&
                 (s[0].text == "public" || s[0].text == "private" || s[0].text == "protected")) {
        s.clear();
        ++at_;
      } else if (t == "{") {
        brace(kind, s, after_type, parens);
      } else {
        s.push_back(tokens_[at_++]);
      }
    }
  }

  void brace(Kind kind, Statement& s, bool& after_type, int parens) {
    if (kind == Kind::body || parens > 0) {
      // A body inside a body: blocks, lambdas, lists. A static local is judged at its own ;.
      if (kind == Kind::body && !(shape(stripped(s)).stat)) {
        ++at_;
        scope(Kind::body);
        s.clear();
      } else {
        skip_braces(s);
      }
      return;
    }
    const Statement plain = stripped(s);
    const Shape is = shape(plain);
    const std::string last = plain.empty() ? "" : plain.back().text;
    bool space = false;
    for (std::size_t i = 0; i < plain.size() && i < 3; ++i) {
      if (plain[i].text == "namespace") space = true;
    }
    if (!plain.empty() && plain.front().text == "extern" && plain.size() <= 3 && !is.parens) {
      space = plain.back().text == "\"" || plain.size() == 1;  // extern "C" {
    }
    if (space) {
      ++at_;
      scope(Kind::space);
      s.clear();
      return;
    }
    if (ends_in_requires(plain) || is.equals) {
      skip_braces(s);
      return;
    }
    const bool function = is.op || is.parens;
    if (is.type && (!function || type_after_parens(plain))) {
      ++at_;
      scope(Kind::type);
      s.clear();
      after_type = kind == Kind::space;
      return;
    }
    if (function) {
      if (is_initializer(plain)) {  // a constructor's a_{1}
        skip_braces(s);
        return;
      }
      ++at_;
      scope(Kind::body);
      s.clear();
      return;
    }
    skip_braces(s);  // int x{3};
  }

  static bool type_after_parens(const Statement& s) {  // requires(…) struct X {
    bool parens = false;
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (s[i].text == "(") {
        if (i > 0 && s[i - 1].text == "requires") {
          i = after(s, i, "(", ")") - 1;
          continue;
        }
        parens = true;
      }
    }
    return !parens;
  }

  static bool is_initializer(const Statement& s) {
    bool colon = false;
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (s[i].text == "(")
        i = after(s, i, "(", ")") - 1;
      else if (s[i].text == ":")
        colon = true;
    }
    if (!colon) return false;
    const std::string& last = s.back().text;
    return last == ">" || (is_word(last.front()) && last != "try");
  }

  static bool ends_in_requires(const Statement& s) {  // requires { or requires (T t) {
    if (s.empty()) return false;
    if (s.back().text == "requires") return true;
    if (s.back().text != ")") return false;
    int depth = 0;
    for (std::size_t i = s.size(); i-- > 0;) {
      if (s[i].text == ")") ++depth;
      if (s[i].text == "(" && --depth == 0) return i > 0 && s[i - 1].text == "requires";
    }
    return false;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::vector<Found> found_;
};

}  // namespace contract
