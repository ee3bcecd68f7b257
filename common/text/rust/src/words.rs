//! Ids of pieces seen before. Sharded so that threads rarely wait for each other; a shard that is full starts afresh,
//! which bounds the memory without bookkeeping on the way.
use ahash::RandomState;
use std::collections::HashMap;
use std::sync::RwLock;

const SHARDS: usize = 64;
const WORDS_A_SHARD: usize = 768;
/// Longer pieces are rare and not worth the room: 64 * 768 * (64 + 4 * 32 + overhead of 64) is below 13 MB, and a
/// usual word takes a third of that.
const WORD_BYTES_MAX: usize = 64;
const WORD_IDS_MAX: usize = 32;

pub struct Words {
    state: RandomState,
    shards: Vec<RwLock<HashMap<Box<[u8]>, Box<[u32]>, RandomState>>>,
}

impl Words {
    pub fn new() -> Self {
        let state = RandomState::new();
        let shards = (0..SHARDS).map(|_| RwLock::new(HashMap::with_hasher(state.clone()))).collect();
        Words { state, shards }
    }

    fn shard(&self, word: &[u8]) -> &RwLock<HashMap<Box<[u8]>, Box<[u32]>, RandomState>> {
        &self.shards[(self.state.hash_one(word) >> 40) as usize % SHARDS]
    }

    /// Appends the ids of `word` and says whether it was known.
    pub fn append(&self, word: &str, ids: &mut Vec<u32>) -> bool {
        if word.len() > WORD_BYTES_MAX {
            return false;
        }
        let shard = self.shard(word.as_bytes()).read().unwrap_or_else(|e| e.into_inner());
        let Some(known) = shard.get(word.as_bytes()) else { return false };
        ids.extend_from_slice(known);
        true
    }

    pub fn insert(&self, word: &str, ids: &[u32]) {
        if word.len() > WORD_BYTES_MAX || ids.len() > WORD_IDS_MAX {
            return;
        }
        let mut shard = self.shard(word.as_bytes()).write().unwrap_or_else(|e| e.into_inner());
        if shard.len() >= WORDS_A_SHARD {
            shard.clear();
        }
        shard.insert(word.as_bytes().into(), ids.into());
    }
}
