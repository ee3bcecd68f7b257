// What the text of a choice turned out to be, in the order of the text: content, reasoning, calls of tools. Neighbours
// of one kind are one event. Pure values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace penstock::router {

struct OutputEvent {
  enum class Kind : std::uint8_t {
    content,
    reasoning,
    call,       // a call begins: `text` is the function's name
    arguments,  // more of the JSON text of a call's arguments
  };
  Kind kind = Kind::content;
  std::uint32_t call = 0;  // index of the call in its choice, from 0; of `call` and `arguments`
  std::string text;
  std::string id;  // of `call`

  friend bool operator==(const OutputEvent&, const OutputEvent&) = default;
};
using OutputEvents = std::vector<OutputEvent>;

inline void append_event(OutputEvents& events, OutputEvent event) {
  const bool goes_on = !events.empty() && event.kind != OutputEvent::Kind::call && events.back().kind == event.kind &&
                       events.back().call == event.call;
  if (goes_on) {
    events.back().text += event.text;
  } else {
    events.push_back(std::move(event));
  }
}

}  // namespace penstock::router
