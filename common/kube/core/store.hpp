// The cache of one resource type: projections by key, by controller owner and by chosen labels, in the order of keys.
// Written by one Informer (or a simulated one), read by reconciles between its changes; pointers are good until the
// next change. A relist is staged beside the old contents, holding only what differs, and swapped in at once; what the
// swap drops is reported like a deletion. Pure; one thread. Bounded by what the API server holds: give selectors.
// What is long stands outside of the class, so that programs with many stores can instantiate each once
// (`extern template`): compilers make code of it anew in every file otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/check.hpp"
#include "common/kube/model/object_meta.hpp"

namespace penstock::kube {

/// Whether a change came as an event or from the comparison at a (re)list: a queue may put the latter behind.
enum class Origin : std::uint8_t { live, sync };

/// One change, told after it is in the store. `before` is only good during the call.
template <class T>
struct Change {
  const T* before = nullptr;  // null: added
  const T* after = nullptr;   // null: removed, also when the deletion itself was missed
  Origin origin = Origin::live;
};

/// T is a struct with a member `ObjectMeta meta`.
template <class T>
class Store {
 public:
  using Observer = std::function<void(const Change<T>&)>;
  using List = std::vector<const T*>;

  /// Keys of labels by which objects will be looked up.
  explicit Store(std::vector<std::string> indexed_labels = {});
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // --- Reading ---
  const T* find(const Key& key) const;
  List all() const;
  List in_namespace(const std::string& namespace_) const;
  /// Objects whose controller has this uid.
  List owned_by(std::string_view uid) const;
  /// Objects with this value of an indexed label, in all namespaces; another label is a mistake of the caller.
  List with_label(std::string_view label, std::string_view value) const;
  std::size_t size() const { return objects_.size(); }
  /// Whether the first list is in: before that, absence means nothing.
  bool synced() const { return synced_; }
  /// The newest resource version that this cache has seen; 0 before the first list.
  std::uint64_t version() const { return version_; }
  /// For "skip until the cache shows my last write". Versions of one resource type compare as integers.
  bool reached(std::uint64_t version) const { return version_ >= version; }

  // --- Changes ---
  void observe(Observer observer);
  void upsert(T object, Origin origin = Origin::live);
  /// The store may not have it: then nothing happens.
  void erase(const Key& key, std::uint64_t version = 0);
  /// A bookmark.
  void advance(std::uint64_t version) {
    if (version > version_) version_ = version;
  }

  // --- A relist: begin, then stage or unstage, then commit or abandon ---
  void begin_replace();
  void stage(T object);
  /// The object is there, but what came can't be read: what the store has stays.
  void stage_unchanged(const Key& key);
  void unstage(const Key& key);
  void abandon_replace();
  /// `version` is that of the list. It may be below what was seen when the server was restored from a backup.
  void commit_replace(std::uint64_t version);

 private:
  /// Orders objects by key, without holding keys of their own: names are long and many.
  struct ByKey {
    using is_transparent = void;
    static auto key_of(const Key& key) { return std::tie(key.namespace_, key.name); }
    static auto key_of(const T* object) { return std::tie(object->meta.namespace_, object->meta.name); }
    static auto key_of(const std::unique_ptr<T>& object) { return key_of(object.get()); }
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return key_of(a) < key_of(b);
    }
  };
  using Index = std::map<std::string, List, std::less<>>;  // lists in the order of keys

  static List look_up(const Index& index, std::string_view value);
  static void link(Index& index, std::string_view value, const T* object);
  static void unlink(Index& index, std::string_view value, const T* object);
  void link(const T& object);
  void unlink(const T& object);
  void put(std::unique_ptr<T> object, Origin origin);
  void remove(const Key& key, Origin origin);
  void tell(const Change<T>& change) const;

  std::set<std::unique_ptr<T>, ByKey> objects_;
  Index owners_;
  std::map<std::string, Index, std::less<>> labels_;
  std::map<Key, std::unique_ptr<T>> staged_;  // null: as it is in the store
  std::vector<Observer> observers_;
  std::uint64_t version_ = 0;
  bool synced_ = false;
};

template <class T>
Store<T>::Store(std::vector<std::string> indexed_labels) {
  for (std::string& label : indexed_labels) labels_.emplace(std::move(label), Index());
}

template <class T>
Store<T>::~Store() = default;

template <class T>
const T* Store<T>::find(const Key& key) const {
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : found->get();
}

template <class T>
typename Store<T>::List Store<T>::all() const {
  List list;
  list.reserve(objects_.size());
  for (const auto& object : objects_) list.push_back(object.get());
  return list;
}

template <class T>
typename Store<T>::List Store<T>::in_namespace(const std::string& namespace_) const {
  List list;
  for (auto at = objects_.lower_bound(Key{namespace_, ""}); at != objects_.end(); ++at) {
    if ((*at)->meta.namespace_ != namespace_) break;
    list.push_back(at->get());
  }
  return list;
}

template <class T>
typename Store<T>::List Store<T>::owned_by(std::string_view uid) const {
  return look_up(owners_, uid);
}

template <class T>
typename Store<T>::List Store<T>::with_label(std::string_view label, std::string_view value) const {
  const auto index = labels_.find(label);
  PENSTOCK_CHECK(index != labels_.end(), "the store has no index of label", label);
  return look_up(index->second, value);
}

template <class T>
void Store<T>::observe(Observer observer) {
  observers_.push_back(std::move(observer));
}

template <class T>
void Store<T>::upsert(T object, Origin origin) {
  advance(object.meta.resource_version);
  put(std::make_unique<T>(std::move(object)), origin);
}

template <class T>
void Store<T>::erase(const Key& key, std::uint64_t version) {
  advance(version);
  remove(key, Origin::live);
}

template <class T>
void Store<T>::begin_replace() {
  staged_.clear();
}

template <class T>
void Store<T>::stage(T object) {
  Key key = object.meta.key();
  const T* current = find(key);
  const bool same = current != nullptr && current->meta.uid == object.meta.uid && object.meta.resource_version != 0 &&
                    current->meta.resource_version == object.meta.resource_version;
  staged_[std::move(key)] = same ? nullptr : std::make_unique<T>(std::move(object));
}

template <class T>
void Store<T>::stage_unchanged(const Key& key) {
  if (find(key) != nullptr) staged_[key].reset();
}

template <class T>
void Store<T>::unstage(const Key& key) {
  staged_.erase(key);
}

template <class T>
void Store<T>::abandon_replace() {
  staged_.clear();
}

template <class T>
void Store<T>::commit_replace(std::uint64_t version) {
  std::map<Key, std::unique_ptr<T>> staged = std::exchange(staged_, {});
  std::vector<Key> gone;
  for (const auto& object : objects_) {
    if (!staged.contains(object->meta.key())) gone.push_back(object->meta.key());
  }
  version_ = version;
  synced_ = true;
  for (const Key& key : gone) remove(key, Origin::sync);
  for (auto at = staged.begin(); at != staged.end(); at = staged.erase(at)) {
    if (at->second) put(std::move(at->second), Origin::sync);
  }
}

template <class T>
typename Store<T>::List Store<T>::look_up(const Index& index, std::string_view value) {
  const auto found = index.find(value);
  if (found == index.end()) return {};
  return found->second;
}

template <class T>
void Store<T>::link(Index& index, std::string_view value, const T* object) {
  auto found = index.find(value);
  if (found == index.end()) found = index.emplace(std::string(value), List()).first;
  List& list = found->second;
  list.insert(std::lower_bound(list.begin(), list.end(), object, ByKey()), object);
}

template <class T>
void Store<T>::unlink(Index& index, std::string_view value, const T* object) {
  const auto found = index.find(value);
  if (found == index.end()) return;
  List& list = found->second;
  const auto place = std::lower_bound(list.begin(), list.end(), object, ByKey());
  if (place != list.end() && *place == object) list.erase(place);
  if (list.empty()) index.erase(found);
}

template <class T>
void Store<T>::link(const T& object) {
  if (object.meta.controller) link(owners_, object.meta.controller->uid, &object);
  for (auto& [label, index] : labels_) {
    if (const auto value = object.meta.labels.find(label)) link(index, *value, &object);
  }
}

template <class T>
void Store<T>::unlink(const T& object) {
  if (object.meta.controller) unlink(owners_, object.meta.controller->uid, &object);
  for (auto& [label, index] : labels_) {
    if (const auto value = object.meta.labels.find(label)) unlink(index, *value, &object);
  }
}

template <class T>
void Store<T>::put(std::unique_ptr<T> object, Origin origin) {
  const auto found = objects_.find(object);
  if (found == objects_.end()) {
    const T* added = objects_.insert(std::move(object)).first->get();
    link(*added);
    tell({nullptr, added, origin});
    return;
  }
  if ((*found)->meta.uid != object->meta.uid) {
    // Deleted and made anew between two looks: two changes, since whoever waits for the deletion must see it.
    remove(object->meta.key(), origin);
    put(std::move(object), origin);
    return;
  }
  unlink(**found);
  auto node = objects_.extract(found);
  const std::unique_ptr<T> before = std::exchange(node.value(), std::move(object));
  const T* after = objects_.insert(std::move(node)).position->get();
  link(*after);
  tell({before.get(), after, origin});
}

template <class T>
void Store<T>::remove(const Key& key, Origin origin) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return;
  unlink(**found);
  const auto removed = objects_.extract(found);
  tell({removed.value().get(), nullptr, origin});
}

template <class T>
void Store<T>::tell(const Change<T>& change) const {
  for (const Observer& observer : observers_) observer(change);
}

}  // namespace penstock::kube
