// One line of the protocol of vectors/README.md, and what answers it.
#pragma once

#include <cstdint>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <arrow/util/secure_string.h>

using std::string;

// What Arrow C++ does not have.
struct Skip : std::runtime_error {
  using std::runtime_error::runtime_error;
};

string Hex(const string& bytes);
string Unhex(const string& digits);
int64_t ToInteger(const string& text);
string ClassName(const std::exception& error);

inline arrow::util::SecureString Secret(string bytes) {
  return arrow::util::SecureString(std::move(bytes));
}

class Request {
 public:
  explicit Request(const string& line);

  const string& operation() const { return operation_; }
  bool Has(const string& name) const { return fields_.count(name) > 0; }
  const string& Text(const string& name) const;
  string Bytes(const string& name) const { return Unhex(Text(name)); }
  int64_t Integer(const string& name) const { return ToInteger(Text(name)); }
  uint64_t Hash() const;
  std::vector<string> List(const string& name) const;
  std::map<string, string> Map(const string& name) const;  // the values are bytes

 private:
  string operation_;
  std::map<string, string> fields_;
};

// An outcome, and its fields one after the other.
class Reply {
 public:
  explicit Reply(const string& outcome) { line_ << outcome; }

  template <typename T>
  Reply& With(const char* name, const T& value) {
    line_ << '\t' << name << '=' << value;
    return *this;
  }
  operator string() const { return line_.str(); }

 private:
  std::stringstream line_;
};

// vector_filters.cc
string HashValue(const Request& request);
string BlockMask(const Request& request);
string BlockIndex(const Request& request);
string BlockInsert(const Request& request);
string BlockCheck(const Request& request);
string BitsetBuild(const Request& request);
string BitsetCheck(const Request& request);
string Fold(const Request& request);
string SizingBlocks(const Request& request);
string HeaderEncode(const Request& request);
string HeaderDecode(const Request& request);

// vector_crypto.cc
string BuildAad(const Request& request);
string ModuleEncrypt(const Request& request);
string ModuleDecrypt(const Request& request);
string ModuleSign(const Request& request);
string ModuleVerify(const Request& request);

// vector_keys.cc
string UnwrapKey(const Request& request);

// vector_files.cc
string ReadFile(const Request& request);
