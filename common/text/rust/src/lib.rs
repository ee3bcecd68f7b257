//! Hugging Face `tokenizers`, `minijinja` and `blake3` behind a C ABI for `common/text`.
//!
//! Conventions of every exported function: results and error sentences are handed to a sink that copies them, so that
//! no memory changes owner; the status says which of the two it was; panics are caught and become status `internal`.
mod bytes;
mod fast;
mod ffi;
mod hash;
mod json;
mod python;
mod split;
mod template;
mod tokenizer;
mod vocabulary;
mod words;
mod work;

pub use ffi::{Slice, Status};
