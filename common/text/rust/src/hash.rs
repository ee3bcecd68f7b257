//! The block-hash chain; see `common/text/block_hash.hpp` for the scheme.
use crate::ffi::{array, guard, Sink, Slice, Status};

const NARROW: usize = 3; // bytes a token below 2^24
const WIDE: usize = 4;

/// A keyed hash of at most one BLAKE3 block is one compression with these flags: keyed, and start, end and root of the
/// tree at once.
const ONE_BLOCK: u8 = 1 << 4 | 1 << 0 | 1 << 1 | 1 << 3;
const BLOCK: usize = 64;

fn digest(key: &[u8; 32], message: &[u8]) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&blake3::keyed_hash(key, message).as_bytes()[..16]);
    out
}

/// `digest` for a chain of short messages: the crate's own compression without the set-up of its general hasher, which
/// costs as much again. The crate's version is pinned, since this entry is not promised to stay.
struct Chain {
    platform: blake3::platform::Platform,
    key: [u8; 32],
    key_words: [u32; 8],
}

impl Chain {
    fn new(key: &[u8; 32]) -> Chain {
        let mut key_words = [0; 8];
        for (word, bytes) in key_words.iter_mut().zip(key.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Chain { platform: blake3::platform::Platform::detect(), key: *key, key_words }
    }

    /// The hash of `parent` and the tokens of one block.
    fn next(&self, parent: &[u8; 16], block: &[u32]) -> [u8; 16] {
        let width = if block.iter().fold(0, |all, id| all | id) < 1 << 24 { NARROW } else { WIDE };
        let size = 16 + width * block.len();
        if width == NARROW && size <= BLOCK {
            return self.compress(parent, block, size);
        }
        let mut message = Vec::with_capacity(size);
        message.extend_from_slice(parent);
        for id in block {
            message.extend_from_slice(&id.to_le_bytes()[..width]);
        }
        digest(&self.key, &message)
    }

    fn compress(&self, parent: &[u8; 16], block: &[u32], size: usize) -> [u8; 16] {
        // One byte of room, so that each token can be written as four bytes and the next overwrites the last of them.
        let mut message = [0; BLOCK + 1];
        message[..16].copy_from_slice(parent);
        for (i, id) in block.iter().enumerate() {
            let at = 16 + NARROW * i;
            message[at..at + WIDE].copy_from_slice(&id.to_le_bytes());
        }
        let mut words = self.key_words;
        let mut bytes = [0; BLOCK];
        bytes.copy_from_slice(&message[..BLOCK]);
        self.platform.compress_in_place(&mut words, &bytes, size as u8, 0, ONE_BLOCK);
        let mut out = [0; 16];
        for (to, word) in out.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out
    }
}

/// Hashes the full blocks of `tokens` after `parent` into `out`, 16 bytes each.
///
/// # Safety
/// `key` is 32 readable bytes, `parent` 16, `tokens` `count` values; `out` has room for 16 * (count / block_tokens).
#[no_mangle]
pub unsafe extern "C" fn penstock_text_hash_blocks(
    key: *const [u8; 32],
    parent: *const [u8; 16],
    tokens: *const u32,
    count: usize,
    block_tokens: usize,
    out: *mut [u8; 16],
) {
    let chain = Chain::new(&*key);
    let mut parent = *parent;
    for (i, block) in array(tokens, count).chunks_exact(block_tokens).enumerate() {
        parent = chain.next(&parent, block);
        out.add(i).write(parent);
    }
}

/// Keyed BLAKE3 of a message, cut to 16 bytes.
///
/// # Safety
/// `key` is 32 readable bytes and `message` valid.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_keyed_digest(key: *const [u8; 32], message: Slice, sink: Sink) -> Status {
    guard(sink, || {
        sink.put(&digest(&*key, message.bytes()));
        Ok(())
    })
}
