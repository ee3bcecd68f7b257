// What Beast's parsers must be spared of a chunked body: they assert five bytes whenever they look at the last chunk
// again, and of an empty body fewer may have come ("0", CRLF). No chunked body is shorter, so neither side gives the
// parser its beginning before. Owner: the parser's. Thread: any.
#pragma once

#include <cstddef>

namespace penstock::http::detail {

constexpr std::size_t chunked_body_bytes_min = 5;  // "0" CRLF CRLF

}  // namespace penstock::http::detail
