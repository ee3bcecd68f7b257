// Result<T>: a value or an Error. C++20 has no std::expected; the alias lets us move later.
#pragma once

#include <boost/system/result.hpp>
#include <string>
#include <utility>

#include "common/base/error.hpp"

namespace penstock {

template <class T>
using Result = boost::system::result<T, Error>;

/// Makes an Error to be returned from a function whose result is Result<T>.
inline Error make_error(ErrorCode code, std::string message) { return Error{code, std::move(message)}; }

/// Called by Result::value() on an error; kept out of line so that headers stay light.
[[noreturn]] void throw_exception_from_error(const Error& error, const boost::source_location& where);

}  // namespace penstock

/// Evaluates an expression of type Result<T>; returns its error from the calling function, or assigns its value.
#define PENSTOCK_CONCAT_INNER(a, b) a##b
#define PENSTOCK_CONCAT(a, b) PENSTOCK_CONCAT_INNER(a, b)
#define PENSTOCK_TRY(lhs, expr) PENSTOCK_TRY_INNER(PENSTOCK_CONCAT(penstock_try_, __LINE__), lhs, expr)
#define PENSTOCK_TRY_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                       \
  if (!tmp) return std::move(tmp).error(); \
  lhs = std::move(*tmp)
#define PENSTOCK_TRY_VOID(expr)                          \
  do {                                                   \
    auto penstock_try_result = (expr);                   \
    if (!penstock_try_result) return std::move(penstock_try_result).error(); \
  } while (false)
