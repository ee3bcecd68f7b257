//! What bytes each token stands for.
use crate::ffi::Failure;
use tokenizers::{DecoderWrapper, Model, Tokenizer};

/// Ids above this would make the tables of a hostile file too large.
const ID_MAX: u32 = 1 << 22;
const EXISTS: u8 = 1;
const SPECIAL: u8 = 2;

/// How ids turn back into bytes.
#[derive(Clone, Copy, PartialEq)]
pub enum Decoding {
    ByteLevel,
    /// U+2581 is a space, <0xNN> a byte.
    Spm {
        strips_leading_space: bool,
    },
}

/// The characters that stand for bytes in byte-level vocabularies: printable Latin-1 for itself, others from U+0100 on.
pub fn byte_chars() -> [char; 256] {
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

/// The bytes of every id, one after another, with what else C++ keeps of it.
pub struct Tables {
    pub bytes: Vec<u8>,
    pub offsets: Vec<u32>,
    pub flags: Vec<u8>,
    pub decoding: Decoding,
}

fn id_limit(tokenizer: &Tokenizer) -> Result<u32, Failure> {
    let added = tokenizer.get_added_tokens_decoder();
    let greatest = tokenizer.get_vocab(false).into_values().chain(added.into_keys()).max();
    match greatest {
        None => Err(Failure::invalid("the tokenizer's vocabulary is empty")),
        Some(id) if id >= ID_MAX => {
            Err(Failure::invalid(format!("the tokenizer has a token with id {id}; the limit is {ID_MAX}")))
        }
        Some(id) => Ok(id + 1),
    }
}

pub fn tables(tokenizer: &Tokenizer) -> Result<Tables, Failure> {
    let decoding = decoding(tokenizer)?;
    let limit = id_limit(tokenizer)?;
    let added = tokenizer.get_added_tokens_decoder();
    let mut of_char = std::collections::HashMap::new();
    for (byte, c) in byte_chars().into_iter().enumerate() {
        of_char.insert(c, byte as u8);
    }
    let mut tables = Tables { bytes: Vec::new(), offsets: vec![0], flags: Vec::new(), decoding };
    for id in 0..limit {
        let flags = if let Some(token) = added.get(&id) {
            tables.bytes.extend_from_slice(token.content.as_bytes());
            EXISTS | if token.special { SPECIAL } else { 0 }
        } else if let Some(token) = tokenizer.get_model().id_to_token(id) {
            append_token(decoding, &of_char, &token, &mut tables.bytes);
            EXISTS
        } else {
            0
        };
        tables.flags.push(flags);
        let size = u32::try_from(tables.bytes.len()).map_err(|_| Failure::invalid("the vocabulary is over 4 GiB"))?;
        tables.offsets.push(size);
    }
    Ok(tables)
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
