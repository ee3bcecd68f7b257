//! The block-hash chain; see `common/text/block_hash.hpp` for the scheme.
use crate::ffi::{array, guard, Sink, Slice, Status};

const NARROW: usize = 3; // bytes a token below 2^24
const WIDE: usize = 4;

fn digest(key: &[u8; 32], message: &[u8]) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&blake3::keyed_hash(key, message).as_bytes()[..16]);
    out
}

/// Writes parent and tokens into `message`, which is reused from block to block.
fn lay_out(message: &mut Vec<u8>, parent: &[u8; 16], block: &[u32]) {
    let width = if block.iter().fold(0, |all, id| all | id) < 1 << 24 { NARROW } else { WIDE };
    message.resize(16 + width * block.len(), 0);
    message[..16].copy_from_slice(parent);
    if width == WIDE {
        for (to, id) in message[16..].chunks_exact_mut(WIDE).zip(block) {
            to.copy_from_slice(&id.to_le_bytes());
        }
    } else {
        for (to, id) in message[16..].chunks_exact_mut(NARROW).zip(block) {
            to.copy_from_slice(&id.to_le_bytes()[..NARROW]);
        }
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
    let tokens = array(tokens, count);
    let mut parent = *parent;
    let mut message = Vec::with_capacity(16 + WIDE * block_tokens);
    for (i, block) in tokens.chunks_exact(block_tokens).enumerate() {
        lay_out(&mut message, &parent, block);
        parent = digest(&*key, &message);
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
