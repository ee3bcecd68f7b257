// A router whose workers say what is written here, for the official clients: each model is one way to answer. Prints
// its port, serves until its input ends.
#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/streambuf.hpp>
#include <iostream>

#include "tests/integration/router/cluster.hpp"

namespace {

using penstock::test::FakeWorkerOptions;

FakeWorkerOptions saying(const std::string& model, const std::string& chat_template, const std::string& text) {
  FakeWorkerOptions options;
  options.model = model;
  options.chat_template =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ '" + chat_template + "' if false }}";
  options.text = text;
  options.ends_at = static_cast<std::uint32_t>(text.size());
  options.choice_shift = 0;
  return options;
}

}  // namespace

int main() {
  penstock::test::Cluster cluster({
      saying("hermes", "<tool_call></think>",
             "<think>\nHm.\n</think>\n\nI ask both.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
             "\"Köln\", "
             "\"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
             "\"Bonn\"}}\n</tool_call>"),
      saying("llama", "<|python_tag|>", "{\"name\": \"weather\", \"parameters\": {\"city\": \"Köln\"}}"),
      saying("mistral", "[TOOL_CALLS]", "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\"}}]"),
      saying(
          "coder", "<function=",
          "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
          "</function>\n</tool_call>"),
      saying("text", "", "Hello there."),
  });
  std::cout << cluster.app->port() << std::endl;
  boost::asio::posix::stream_descriptor input(cluster.io, ::dup(STDIN_FILENO));
  boost::asio::streambuf unused(64);
  bool is_over = false;
  boost::asio::async_read(input, unused, [&](const boost::system::error_code&, std::size_t) { is_over = true; });
  while (!is_over) cluster.io.run_one_for(std::chrono::seconds(1));
  return 0;
}
