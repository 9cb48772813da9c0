// Arrow C++ behind the protocol of vectors/README.md: its own code answers, and what it does not
// have is skipped. An exception that is no refusal becomes the outcome "error", which is none.
#include <cstdlib>
#include <cxxabi.h>
#include <functional>
#include <iostream>
#include <typeinfo>

#include "vector_protocol.h"

string Hex(const string& bytes) {
  static const char* digits = "0123456789abcdef";
  string out;
  out.reserve(2 * bytes.size());
  for (unsigned char c : bytes) {
    out += digits[c >> 4];
    out += digits[c & 15];
  }
  return out;
}

namespace {

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  throw std::invalid_argument(string("no hex digit: ") + c);
}

std::vector<string> Split(const string& text, char separator) {
  std::vector<string> out;
  size_t start = 0;
  for (size_t end; (end = text.find(separator, start)) != string::npos; start = end + 1) {
    out.push_back(text.substr(start, end - start));
  }
  out.push_back(text.substr(start));
  return out;
}

}  // namespace

string Unhex(const string& digits) {
  if (digits.size() % 2) throw std::invalid_argument("half a byte: " + digits);
  string out;
  out.reserve(digits.size() / 2);
  for (size_t i = 0; i < digits.size(); i += 2) {
    out += static_cast<char>(16 * Digit(digits[i]) + Digit(digits[i + 1]));
  }
  return out;
}

int64_t ToInteger(const string& text) {
  size_t end = 0;
  int64_t value = std::stoll(text, &end);
  if (end != text.size()) throw std::invalid_argument("no integer: " + text);
  return value;
}

string ClassName(const std::exception& error) {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
  string out = status == 0 ? name : typeid(error).name();
  std::free(name);
  return out;
}

Request::Request(const string& line) {
  auto parts = Split(line, '\t');
  operation_ = parts[0] + " " + parts.at(1);
  for (size_t i = 2; i < parts.size(); ++i) {
    size_t end = parts[i].find('=');
    if (end == string::npos) throw std::invalid_argument("no field: " + parts[i]);
    fields_[parts[i].substr(0, end)] = parts[i].substr(end + 1);
  }
}

const string& Request::Text(const string& name) const {
  auto found = fields_.find(name);
  if (found == fields_.end()) throw std::invalid_argument("the request has no " + name);
  return found->second;
}

uint64_t Request::Hash() const { return std::stoull(Text("hash"), nullptr, 16); }

std::vector<string> Request::List(const string& name) const {
  auto items = Split(Text(name), ',');
  items.pop_back();  // every item is followed by a comma
  return items;
}

std::map<string, string> Request::Map(const string& name) const {
  std::map<string, string> out;
  for (const string& item : List(name)) {
    size_t end = item.rfind(':');
    out[item.substr(0, end)] = Unhex(item.substr(end + 1));
  }
  return out;
}

namespace {

using Operation = std::function<string(const Request&)>;

Operation Lacking(const string& reason) {
  return [reason](const Request&) -> string { throw Skip(reason); };
}

const std::map<string, Operation>& Operations() {
  static const std::map<string, Operation> operations = {
      {"xxh64 hash", HashValue},
      {"blocks mask", BlockMask},
      {"blocks index", BlockIndex},
      {"blocks insert", BlockInsert},
      {"blocks check", BlockCheck},
      {"bitsets build", BitsetBuild},
      {"bitsets check", BitsetCheck},
      {"fold-merge fold", Fold},
      {"fold-merge merge", Lacking("Arrow C++ does not merge")},
      {"sizing fpp", Lacking("Arrow C++ computes no false positive probability")},
      {"sizing blocks", SizingBlocks},
      {"headers encode", HeaderEncode},
      {"headers decode", HeaderDecode},
      {"footers revealed", Lacking("Arrow C++ does not audit footers")},
      {"aad build", BuildAad},
      {"modules encrypt", ModuleEncrypt},
      {"modules decrypt", ModuleDecrypt},
      {"modules sign", ModuleSign},
      {"modules verify", ModuleVerify},
      {"key-material unwrap", UnwrapKey},
      {"files read", ReadFile},
      {"index lookup", Lacking("Arrow C++ has no index of data sets")},
  };
  return operations;
}

string Answer(const string& line) {
  Request request(line);
  auto found = Operations().find(request.operation());
  // no skip: a slip in a name must not pass for something that Arrow C++ lacks
  if (found == Operations().end()) {
    throw std::invalid_argument("no operation " + request.operation());
  }
  return found->second(request);
}

string OneLine(string text) {
  for (char& c : text) {
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

}  // namespace

int main() {
  for (string line; std::getline(std::cin, line);) {
    string reply;
    try {
      reply = Answer(line);
    } catch (const Skip& skip) {
      reply = Reply("skip").With("reason", OneLine(skip.what()));
    } catch (const std::exception& error) {
      reply = Reply("error").With("class", ClassName(error)).With("message", OneLine(error.what()));
    }
    std::cout << reply << std::endl;
  }
}
