// One open-addressing hash table from block hash to a small value; the building stone of the prefix index. Linear
// probing, deletion by shifting back (no tombstones), power-of-two capacity. A zero hash marks a free cell and cannot
// be a key. Single owner. The caller decides about growth, so that it can bound memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/id.hpp"

namespace penstock::router {

/// Spreads a block hash over 64 bits. Real hashes are uniform already; this also copes with made-up ones.
inline std::uint64_t mix(const BlockHash& hash) {
  std::uint64_t x = hash.high * 0xD6E8FEB86659FD93ull;
  x = (x ^ (x >> 32)) + hash.low;
  x *= 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 32);
}

template <class Value>
class BlockTable {
 public:
  struct Cell {
    BlockHash hash;
    Value value;
    bool is_free() const { return hash.is_zero(); }
  };

  explicit BlockTable(std::size_t capacity = 16) : cells_(capacity), mask_(capacity - 1) {}

  std::size_t size() const { return size_; }
  std::size_t capacity() const { return cells_.size(); }
  std::size_t bytes() const { return cells_.size() * sizeof(Cell); }
  /// At most 13/16 of the cells are used, since probes get long beyond.
  bool is_full() const { return size_ * 16 >= cells_.size() * 13; }

  void prefetch(std::uint64_t mixed) const { __builtin_prefetch(&cells_[mixed & mask_]); }

  Cell* find(const BlockHash& hash, std::uint64_t mixed) {
    for (std::size_t at = mixed & mask_;; at = (at + 1) & mask_) {
      Cell& cell = cells_[at];
      if (cell.hash == hash) return &cell;
      if (cell.is_free()) return nullptr;
    }
  }

  /// The cell of `hash`, new (with `fresh` as value) if it was absent. The table must have room unless it holds the
  /// hash.
  std::pair<Cell*, bool> insert(const BlockHash& hash, std::uint64_t mixed, const Value& fresh) {
    for (std::size_t at = mixed & mask_;; at = (at + 1) & mask_) {
      Cell& cell = cells_[at];
      if (cell.hash == hash) return {&cell, false};
      if (cell.is_free()) {
        cell = Cell{hash, fresh};
        ++size_;
        return {&cell, true};
      }
    }
  }

  /// Other cells may move: into this one, or from the start to the end of the table.
  void erase(Cell* cell) {
    auto hole = static_cast<std::size_t>(cell - cells_.data());
    for (std::size_t at = (hole + 1) & mask_; !cells_[at].is_free(); at = (at + 1) & mask_) {
      const std::size_t home = mix(cells_[at].hash) & mask_;
      if (((at - home) & mask_) >= ((at - hole) & mask_)) {
        cells_[hole] = cells_[at];
        hole = at;
      }
    }
    cells_[hole] = Cell{};
    --size_;
  }

  void grow() {
    BlockTable larger(cells_.size() * 2);
    for (const Cell& cell : cells_) {
      if (!cell.is_free()) larger.insert(cell.hash, mix(cell.hash), cell.value);
    }
    *this = std::move(larger);
  }

  Cell& at(std::size_t index) { return cells_[index & mask_]; }

 private:
  std::vector<Cell> cells_;
  std::size_t mask_;
  std::size_t size_ = 0;
};

}  // namespace penstock::router
