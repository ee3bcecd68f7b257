//! A tokenizer as `common/text/tokenizer.hpp` shows it: the library's, plus a fast path for the usual kinds of
//! byte-level BPE (hand-written splitter, word cache), which gives the same ids.
use crate::ffi::{array, guard, Failure, Sink, Slice, Status};
use crate::split::{Pattern, Splitter, LLAMA3, QWEN2};
use crate::vocabulary::{self, Parts};
use crate::words::Words;
use aho_corasick::{AhoCorasick, MatchKind};
use std::sync::OnceLock;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, PreTokenizerWrapper,
    SplitDelimiterBehavior, Tokenizer,
};

/// Ids above this would make the tables of a hostile file too large.
const ID_MAX: u32 = 1 << 22;
/// A piece for the token cache ends at the first cut after this many bytes ...
const PIECE_BYTES: usize = 4096;
/// ... or after a special token once it has this many, so that the turns of a chat are pieces of their own.
const PIECE_BYTES_AT_SPECIAL: usize = 512;

const EXISTS: u8 = 1;
const SPECIAL: u8 = 2;

/// Finds added tokens, leftmost and longest, as the library does.
struct Matcher {
    search: AhoCorasick,
    ids: Vec<u32>,
    special: Vec<bool>,
}

/// What the fast path needs to know of a tokenizer that it can do.
struct Fast {
    pattern: Pattern,
    single_digits: bool,
    nfc: bool,
    /// Tokens found in the text as it is, then those found in what is left.
    matchers: Vec<Matcher>,
    byte_chars: [char; 256],
    words: Words,
}

pub struct Loaded {
    tokenizer: Tokenizer,
    /// The same, but special tokens in the text stay text; made when first asked for.
    as_text: OnceLock<Tokenizer>,
    fast: Option<Fast>,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
}

/// How ids turn back into bytes.
#[derive(Clone, Copy, PartialEq)]
enum Decoding {
    ByteLevel,
    /// U+2581 is a space, <0xNN> a byte.
    Spm {
        strips_leading_space: bool,
    },
}

/// The characters that stand for bytes in byte-level vocabularies: printable Latin-1 for itself, others from U+0100 on.
fn byte_chars() -> [char; 256] {
    let mut next = 0x100;
    std::array::from_fn(|byte| {
        let byte = byte as u32;
        if matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) {
            return char::from_u32(byte).unwrap_or_default();
        }
        next += 1;
        char::from_u32(next - 1).unwrap_or_default()
    })
}

fn decoding(tokenizer: &Tokenizer) -> Result<Decoding, Failure> {
    let none = || Failure::unsupported("the tokenizer has no decoder that gives back bytes");
    match tokenizer.get_decoder().ok_or_else(none)? {
        DecoderWrapper::ByteLevel(_) => Ok(Decoding::ByteLevel),
        DecoderWrapper::Metaspace(m) if m.get_replacement() == '\u{2581}' => Ok(Decoding::Spm {
            strips_leading_space: m.get_prepend_scheme() != tokenizers::pre_tokenizers::metaspace::PrependScheme::Never,
        }),
        DecoderWrapper::Sequence(s) => sequence_decoding(s.get_decoders()),
        _ => Err(none()),
    }
}

fn sequence_decoding(steps: &[DecoderWrapper]) -> Result<Decoding, Failure> {
    let mut strips_leading_space = false;
    let mut spaces = false;
    for step in steps {
        match step {
            DecoderWrapper::ByteLevel(_) if steps.len() == 1 => return Ok(Decoding::ByteLevel),
            DecoderWrapper::Replace(r) => {
                let json = serde_json::to_value(r).unwrap_or_default();
                spaces = json["pattern"]["String"] == "\u{2581}" && json["content"] == " ";
                if !spaces {
                    return Err(Failure::unsupported("the tokenizer's decoder replaces something other than U+2581"));
                }
            }
            DecoderWrapper::ByteFallback(_) | DecoderWrapper::Fuse(_) => {}
            DecoderWrapper::Strip(s) if s.content == ' ' && s.start <= 1 && s.stop == 0 => {
                strips_leading_space = s.start == 1
            }
            _ => return Err(Failure::unsupported("the tokenizer's decoder has a step that is not supported")),
        }
    }
    if !spaces {
        return Err(Failure::unsupported("the tokenizer's decoder does not say what its spaces are"));
    }
    Ok(Decoding::Spm { strips_leading_space })
}

fn known_split(split: &Split) -> Option<Pattern> {
    let SplitPattern::Regex(regex) = &split.pattern else { return None };
    if split.behavior != SplitDelimiterBehavior::Isolated || split.invert {
        return None;
    }
    match regex.as_str() {
        LLAMA3 => Some(Pattern::Llama3),
        QWEN2 => Some(Pattern::Qwen2),
        _ => None,
    }
}

/// The pattern, and whether digits are split off one by one first.
fn known_steps(steps: &PreTokenizerWrapper) -> Option<(Pattern, bool)> {
    match steps {
        PreTokenizerWrapper::ByteLevel(b) if !b.add_prefix_space && b.use_regex => Some((Pattern::Gpt2, false)),
        PreTokenizerWrapper::Sequence(s) => match s.as_ref() {
            [PreTokenizerWrapper::Digits(d), PreTokenizerWrapper::ByteLevel(b)]
                if d.individual_digits && !b.add_prefix_space && b.use_regex =>
            {
                Some((Pattern::Gpt2, true))
            }
            [PreTokenizerWrapper::Split(split), PreTokenizerWrapper::ByteLevel(b)]
                if !b.add_prefix_space && !b.use_regex =>
            {
                known_split(split).map(|pattern| (pattern, false))
            }
            _ => None,
        },
        _ => None,
    }
}

impl Matcher {
    fn new(tokens: Vec<(String, u32, bool)>) -> Option<Matcher> {
        let search =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(tokens.iter().map(|t| &t.0)).ok()?;
        Some(Matcher {
            search,
            ids: tokens.iter().map(|t| t.1).collect(),
            special: tokens.iter().map(|t| t.2).collect(),
        })
    }
}

impl Fast {
    fn of(tokenizer: &Tokenizer) -> Option<Fast> {
        let nfc = match tokenizer.get_normalizer() {
            None => false,
            Some(NormalizerWrapper::NFC(_)) => true,
            Some(_) => return None,
        };
        let ModelWrapper::BPE(_) = tokenizer.get_model() else { return None };
        let (pattern, single_digits) = known_steps(tokenizer.get_pre_tokenizer()?)?;
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for (id, token) in tokenizer.get_added_tokens_decoder() {
            if token.lstrip || token.rstrip || token.single_word || (nfc && token.normalized) {
                return None;
            }
            let list = if token.normalized { &mut second } else { &mut first };
            list.push((token.content.clone(), id, token.special));
        }
        let matchers =
            [first, second].into_iter().filter(|list| !list.is_empty()).map(Matcher::new).collect::<Option<_>>()?;
        crate::split::prepare();
        Some(Fast { pattern, single_digits, nfc, matchers, byte_chars: byte_chars(), words: Words::new() })
    }

    /// Calls `found` with each added token and each stretch between them, in order.
    fn walk(&self, text: &str, base: usize, level: usize, found: &mut dyn FnMut(usize, usize, Option<(u32, bool)>)) {
        let Some(matcher) = self.matchers.get(level) else {
            if !text.is_empty() {
                found(base, base + text.len(), None);
            }
            return;
        };
        let mut done = 0;
        for m in matcher.search.find_iter(text) {
            self.walk(&text[done..m.start()], base + done, level + 1, found);
            let which = m.pattern().as_usize();
            found(base + m.start(), base + m.end(), Some((matcher.ids[which], matcher.special[which])));
            done = m.end();
        }
        self.walk(&text[done..], base + done, level + 1, found);
    }

    /// As `walk`, but special tokens that stay text are part of the stretches around them.
    fn stretches(&self, text: &str, as_text: bool, found: &mut dyn FnMut(usize, usize, Option<u32>)) {
        let mut open = None;
        let close = |upto: usize, open: &mut Option<usize>, found: &mut dyn FnMut(usize, usize, Option<u32>)| {
            if let Some(start) = open.take() {
                found(start, upto, None);
            }
        };
        self.walk(text, 0, 0, &mut |from, to, token| match token {
            Some((id, special)) if !(as_text && special) => {
                close(from, &mut open, found);
                found(from, to, Some(id));
            }
            _ => {
                open.get_or_insert(from);
            }
        });
        close(text.len(), &mut open, found);
    }

    fn encode(&self, tokenizer: &Tokenizer, text: &str, as_text: bool, ids: &mut Vec<u32>) -> Result<(), Failure> {
        let mut result = Ok(());
        self.stretches(text, as_text, &mut |from, to, token| match token {
            Some(id) => ids.push(id),
            None if result.is_ok() => result = self.encode_plain(tokenizer, &text[from..to], ids),
            None => {}
        });
        result
    }

    fn encode_plain(&self, tokenizer: &Tokenizer, text: &str, ids: &mut Vec<u32>) -> Result<(), Failure> {
        if self.nfc && !text.chars().all(stays_in_nfc) {
            let mut normal = NormalizedString::from(text);
            let normalizer = tokenizer.get_normalizer().ok_or_else(|| Failure::invalid("no normalizer"))?;
            normalizer.normalize(&mut normal).map_err(|e| Failure::invalid(e.to_string()))?;
            return self.encode_words(tokenizer, normal.get(), ids);
        }
        if !self.single_digits {
            return self.encode_words(tokenizer, text, ids);
        }
        let mut start = 0;
        for (at, digit) in text.char_indices().filter(|(_, c)| c.is_numeric()) {
            self.encode_words(tokenizer, &text[start..at], ids)?;
            start = at + digit.len_utf8();
            self.encode_words(tokenizer, &text[at..start], ids)?;
        }
        self.encode_words(tokenizer, &text[start..], ids)
    }

    fn encode_words(&self, tokenizer: &Tokenizer, text: &str, ids: &mut Vec<u32>) -> Result<(), Failure> {
        let splitter = Splitter::new(self.pattern, text);
        let mut start = 0;
        while start < text.len() {
            let end = splitter.next(start);
            let word = &text[start..end];
            start = end;
            if self.words.append(word, ids) {
                continue;
            }
            let spelled: String = word.bytes().map(|byte| self.byte_chars[byte as usize]).collect();
            let tokens = tokenizer.get_model().tokenize(&spelled).map_err(|e| Failure::invalid(e.to_string()))?;
            let first = ids.len();
            ids.extend(tokens.iter().map(|token| token.id));
            self.words.insert(word, &ids[first..]);
        }
        Ok(())
    }

    /// Ends of pieces that can be encoded on their own: see `Splitter::is_cut`. They depend only on the text before
    /// them and on where added tokens are found in it.
    fn pieces(&self, text: &str, as_text: bool) -> Vec<usize> {
        let splitter = Splitter::new(self.pattern, text);
        let bytes = text.as_bytes();
        let mut ends = Vec::new();
        let mut start = 0;
        self.walk(text, 0, 0, &mut |from, to, token| {
            if let Some((_, special)) = token {
                // A special token that stays text is no boundary, nor is any place inside it.
                if !(as_text && special) && to - start >= PIECE_BYTES_AT_SPECIAL {
                    ends.push(to);
                    start = to;
                }
                return;
            }
            let mut at = from.max(start + PIECE_BYTES) + 1;
            while at < to {
                // Half of all cuts in prose are before a space, and bytes are quicker to look at than characters.
                let likely = bytes[at] < 0x80 || bytes[at] >= 0xe3;
                if likely && text.is_char_boundary(at) && splitter.is_cut(at) {
                    ends.push(at);
                    start = at;
                    at += PIECE_BYTES;
                }
                at += 1;
            }
        });
        if start < text.len() {
            ends.push(text.len());
        }
        ends
    }
}

/// Characters that NFC never changes and that never change their neighbours; others take the slower way.
fn stays_in_nfc(c: char) -> bool {
    matches!(c as u32,
        0..=0x2ff | 0x400..=0x482 | 0x2010..=0x2027 | 0x3001..=0x3029 | 0x3041..=0x3096 | 0x30a1..=0x30fa
        | 0x4e00..=0x9fff | 0xff01..=0xff60 | 0x1f300..=0x1faff)
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

    fn encode(&self, text: &str, as_text: bool, add_special: bool) -> Result<Vec<u32>, Failure> {
        let Some(fast) = &self.fast else { return self.library_encode(text, as_text, add_special) };
        let mut ids = Vec::with_capacity(text.len() / 3 + 8);
        if add_special {
            ids.extend_from_slice(&self.prefix);
        }
        fast.encode(&self.tokenizer, text, as_text, &mut ids)?;
        if add_special {
            ids.extend_from_slice(&self.suffix);
        }
        Ok(ids)
    }

    fn id_limit(&self) -> Result<u32, Failure> {
        let added = self.tokenizer.get_added_tokens_decoder();
        let greatest = self.tokenizer.get_vocab(false).into_values().chain(added.into_keys()).max();
        match greatest {
            None => Err(Failure::invalid("the tokenizer's vocabulary is empty")),
            Some(id) if id >= ID_MAX => {
                Err(Failure::invalid(format!("the tokenizer has a token with id {id}; the limit is {ID_MAX}")))
            }
            Some(id) => Ok(id + 1),
        }
    }

    fn tables(&self) -> Result<Tables, Failure> {
        let decoding = decoding(&self.tokenizer)?;
        let limit = self.id_limit()?;
        let added = self.tokenizer.get_added_tokens_decoder();
        let mut of_char = std::collections::HashMap::new();
        for (byte, c) in byte_chars().into_iter().enumerate() {
            of_char.insert(c, byte as u8);
        }
        let mut tables = Tables { bytes: Vec::new(), offsets: vec![0], flags: Vec::new(), decoding };
        for id in 0..limit {
            let flags = if let Some(token) = added.get(&id) {
                tables.bytes.extend_from_slice(token.content.as_bytes());
                EXISTS | if token.special { SPECIAL } else { 0 }
            } else if let Some(token) = self.tokenizer.get_model().id_to_token(id) {
                append_token(decoding, &of_char, &token, &mut tables.bytes);
                EXISTS
            } else {
                0
            };
            tables.flags.push(flags);
            let size =
                u32::try_from(tables.bytes.len()).map_err(|_| Failure::invalid("the vocabulary is over 4 GiB"))?;
            tables.offsets.push(size);
        }
        Ok(tables)
    }
}

struct Tables {
    bytes: Vec<u8>,
    offsets: Vec<u32>,
    flags: Vec<u8>,
    decoding: Decoding,
}

fn append_token(decoding: Decoding, of_char: &std::collections::HashMap<char, u8>, token: &str, out: &mut Vec<u8>) {
    if decoding == Decoding::ByteLevel {
        match token.chars().map(|c| of_char.get(&c).copied()).collect::<Option<Vec<u8>>>() {
            Some(bytes) => out.extend(bytes),
            None => out.extend_from_slice(token.as_bytes()),
        }
        return;
    }
    let hex = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).filter(|hex| hex.len() == 2);
    match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
        Some(byte) => out.push(byte),
        None => out.extend_from_slice(token.replace('\u{2581}', " ").as_bytes()),
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
/// `loaded` and `text` valid. The sink gets u32 ids.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_encode(loaded: *const Loaded, text: Slice, options: u32, sink: Sink) -> Status {
    guard(sink, || {
        let (loaded, text) = (&*loaded, text.text("the text")?);
        let (as_text, add_special) = (options & AS_TEXT != 0, options & ADD_SPECIAL != 0);
        let ids = if options & REFERENCE != 0 {
            loaded.library_encode(text, as_text, add_special)?
        } else {
            loaded.encode(text, as_text, add_special)?
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
        let tables = loaded.tables()?;
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
