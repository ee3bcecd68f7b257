//! A tokenizer as `common/text/tokenizer.hpp` shows it: the library's, with the fast path where there is one.
use crate::bytes::{tables, Decoding};
use crate::fast::Fast;
use crate::ffi::{array, guard, Failure, Sink, Slice, Status};
use crate::vocabulary::{self, Parts};
use crate::work::Work;
use std::sync::OnceLock;
use tokenizers::{ModelWrapper, Tokenizer};

const LIBRARY_WORD_BYTES: usize = 64;

pub struct Loaded {
    tokenizer: Tokenizer,
    /// The same, but special tokens in the text stay text; made when first asked for.
    as_text: OnceLock<Tokenizer>,
    fast: Option<Fast>,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
}

impl Loaded {
    fn new(mut tokenizer: Tokenizer) -> Result<Loaded, Failure> {
        tokenizer.with_truncation(None).map_err(|e| Failure::invalid(e.to_string()))?;
        tokenizer.with_padding(None);
        tokenizer.set_encode_special_tokens(false);
        if let ModelWrapper::BPE(bpe) = tokenizer.get_model() {
            if bpe.dropout.is_some_and(|dropout| dropout > 0.0) {
                return Err(Failure::unsupported("the tokenizer's merges have dropout, so its ids are random"));
            }
        }
        let fast = Fast::of(&tokenizer);
        let mut loaded = Loaded { tokenizer, as_text: OnceLock::new(), fast, prefix: Vec::new(), suffix: Vec::new() };
        loaded.find_affixes()?;
        Ok(loaded)
    }

    /// Learns from one short text what the post-processor puts around every text.
    fn find_affixes(&mut self) -> Result<(), Failure> {
        let bare = self.library_encode("a", false, false)?;
        let whole = self.library_encode("a", false, true)?;
        let unclear = || Failure::unsupported("the tokenizer's post-processor does more than add tokens around a text");
        if bare.is_empty() {
            return if whole.is_empty() { Ok(()) } else { Err(unclear()) };
        }
        let at = whole.windows(bare.len()).position(|window| window == bare).ok_or_else(unclear)?;
        self.prefix = whole[..at].to_vec();
        self.suffix = whole[at + bare.len()..].to_vec();
        Ok(())
    }

    fn library_encode(&self, text: &str, as_text: bool, add_special: bool) -> Result<Vec<u32>, Failure> {
        let tokenizer = if as_text {
            self.as_text.get_or_init(|| {
                let mut copy = self.tokenizer.clone();
                copy.set_encode_special_tokens(true);
                copy
            })
        } else {
            &self.tokenizer
        };
        let encoding = tokenizer.encode_fast(text, add_special).map_err(|e| Failure::invalid(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    fn encode(&self, text: &str, as_text: bool, add_special: bool, work: &mut Work) -> Result<Vec<u32>, Failure> {
        let Some(fast) = &self.fast else {
            // Where the library cuts it is not known; most words are short.
            text.as_bytes().chunks(LIBRARY_WORD_BYTES).try_for_each(|word| work.take(word.len()))?;
            return self.library_encode(text, as_text, add_special);
        };
        let mut ids = Vec::with_capacity(text.len() / 3 + 8);
        if add_special {
            ids.extend_from_slice(&self.prefix);
        }
        fast.encode(&self.tokenizer, text, as_text, work, &mut ids)?;
        if add_special {
            ids.extend_from_slice(&self.suffix);
        }
        Ok(ids)
    }
}

/// # Safety
/// `json` valid; `out` writable. The result is freed with `penstock_text_tokenizer_free`.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_tokenizer_from_json(json: Slice, out: *mut *mut Loaded, sink: Sink) -> Status {
    guard(sink, || {
        let tokenizer = Tokenizer::from_bytes(json.bytes())
            .map_err(|e| Failure::invalid(format!("the tokenizer.json cannot be read: {e}")))?;
        out.write(Box::into_raw(Box::new(Loaded::new(tokenizer)?)));
        Ok(())
    })
}

/// The parts of a GGUF vocabulary; `prefix` and `suffix` are ids or -1.
#[repr(C)]
pub struct RawParts {
    model: Slice,
    pre: Slice,
    tokens: *const Slice,
    token_count: usize,
    types: *const i32,
    type_count: usize,
    merges: *const Slice,
    merge_count: usize,
    prefix: i64,
    suffix: i64,
}

/// # Safety
/// All of `parts` valid; `out` writable.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_tokenizer_from_vocabulary(
    parts: *const RawParts,
    out: *mut *mut Loaded,
    sink: Sink,
) -> Status {
    guard(sink, || {
        let raw = &*parts;
        let texts =
            |data, count, what| array::<Slice>(data, count).iter().map(|s| s.text(what)).collect::<Result<Vec<_>, _>>();
        let parts = Parts {
            model: raw.model.text("the vocabulary kind")?,
            pre: raw.pre.text("the pre-tokenizer's name")?,
            tokens: texts(raw.tokens, raw.token_count, "a token")?,
            types: array(raw.types, raw.type_count),
            merges: texts(raw.merges, raw.merge_count, "a merge")?,
            prefix: u32::try_from(raw.prefix).ok(),
            suffix: u32::try_from(raw.suffix).ok(),
        };
        out.write(Box::into_raw(Box::new(Loaded::new(vocabulary::build(&parts)?)?)));
        Ok(())
    })
}

/// # Safety
/// `loaded` comes from this library and is freed once.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_tokenizer_free(loaded: *mut Loaded) {
    drop(Box::from_raw(loaded));
}

/// Bits of `options`.
const AS_TEXT: u32 = 1;
const ADD_SPECIAL: u32 = 2;
const REFERENCE: u32 = 4;

/// # Safety
/// `loaded`, `text` and `work` valid; `work` is what may be spent, then what is left. The sink gets u32 ids.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_encode(
    loaded: *const Loaded,
    text: Slice,
    options: u32,
    work: *mut u64,
    sink: Sink,
) -> Status {
    guard(sink, || {
        let (loaded, text) = (&*loaded, text.text("the text")?);
        let (as_text, add_special) = (options & AS_TEXT != 0, options & ADD_SPECIAL != 0);
        let ids = if options & REFERENCE != 0 {
            loaded.library_encode(text, as_text, add_special)?
        } else {
            let mut budget = Work::new(*work);
            let ids = loaded.encode(text, as_text, add_special, &mut budget);
            work.write(budget.left());
            ids?
        };
        sink.put(&ids);
        Ok(())
    })
}

/// Facts that C++ keeps beside the handle. `flags`: bit 0 segmentable, bit 1 strips the leading space.
///
/// # Safety
/// `loaded` valid, `flags` writable; each sink takes one array: token bytes, u32 offsets, u8 flags a token, u32 ids.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_tables(
    loaded: *const Loaded,
    bytes: Sink,
    offsets: Sink,
    token_flags: Sink,
    prefix: Sink,
    suffix: Sink,
    flags: *mut u32,
    error: Sink,
) -> Status {
    guard(error, || {
        let loaded = &*loaded;
        let tables = tables(&loaded.tokenizer)?;
        let strips = tables.decoding == Decoding::Spm { strips_leading_space: true };
        flags.write(loaded.fast.is_some() as u32 | (strips as u32) << 1);
        bytes.put(&tables.bytes);
        offsets.put(&tables.offsets);
        token_flags.put(&tables.flags);
        prefix.put(&loaded.prefix);
        suffix.put(&loaded.suffix);
        Ok(())
    })
}

/// # Safety
/// `loaded` and `spelling` valid. Returns the id or -1.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_find_token(loaded: *const Loaded, spelling: Slice) -> i64 {
    let Ok(spelling) = spelling.text("the spelling") else { return -1 };
    (*loaded).tokenizer.token_to_id(spelling).map_or(-1, i64::from)
}

/// # Safety
/// `loaded` valid.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_to_json(loaded: *const Loaded, sink: Sink) -> Status {
    guard(sink, || {
        let json = (*loaded).tokenizer.to_string(false).map_err(|e| Failure::invalid(e.to_string()))?;
        sink.put(json.as_bytes());
        Ok(())
    })
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Piece {
    end: u64,
    digest: [u8; 16],
}

/// # Safety
/// `loaded`, `text` and the 32 bytes at `key` valid. The sink gets `Piece`s.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_pieces(
    loaded: *const Loaded,
    text: Slice,
    options: u32,
    key: *const [u8; 32],
    sink: Sink,
) -> Status {
    guard(sink, || {
        let text = text.text("the text")?;
        let fast =
            (*loaded).fast.as_ref().ok_or_else(|| Failure::unsupported("this tokenizer's texts cannot be cut"))?;
        let mut start = 0;
        let mut pieces = Vec::new();
        for end in fast.pieces(text, options & AS_TEXT != 0) {
            let mut digest = [0; 16];
            digest.copy_from_slice(&blake3::keyed_hash(&*key, text[start..end].as_bytes()).as_bytes()[..16]);
            pieces.push(Piece { end: end as u64, digest });
            start = end;
        }
        sink.put(&pieces);
        Ok(())
    })
}
