#include "operator/runtime/expectations.hpp"

#include <algorithm>

namespace penstock::ctl {

void Expectations::on_written(std::string_view owner_uid, std::string_view type, std::uint64_t version, TimePoint now) {
  auto& notes = notes_[std::string(owner_uid)];
  for (auto& note : notes) {
    if (note.uid.empty() && note.type == type) {
      note.version = std::max(note.version, version);
      note.at = now;
      return;
    }
  }
  notes.push_back({std::string(type), {}, version, now});
}

void Expectations::on_deleted(std::string_view owner_uid, std::string_view type, std::string_view uid, TimePoint now) {
  notes_[std::string(owner_uid)].push_back({std::string(type), std::string(uid), 0, now});
}

bool Expectations::are_met(std::string_view owner_uid, const CacheView& caches, TimePoint now) {
  const auto at = notes_.find(std::string(owner_uid));
  if (at == notes_.end()) return true;
  std::erase_if(at->second, [&](const Note& note) {
    const bool met =
        note.uid.empty() ? caches.version(note.type) >= note.version : !caches.is_live(note.type, note.uid);
    const bool late = !met && now - note.at > patience_;
    if (late) ++expired_;
    return met || late;
  });
  if (!at->second.empty()) return false;
  notes_.erase(at);
  return true;
}

}  // namespace penstock::ctl
