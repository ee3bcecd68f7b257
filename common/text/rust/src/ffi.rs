//! The types that cross the boundary, and the guard that every exported function runs in.
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

/// Bytes that the caller owns for the length of the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice {
    data: *const u8,
    size: usize,
}

impl Slice {
    /// # Safety
    /// `data` must point at `size` readable bytes that stay unchanged for `'a`.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(self.data, self.size)
        }
    }

    /// # Safety
    /// As for `bytes`.
    pub unsafe fn text<'a>(self, what: &str) -> Result<&'a str, Failure> {
        std::str::from_utf8(self.bytes())
            .map_err(|e| Failure::invalid(format!("{what} is not UTF-8 at byte {}", e.valid_up_to())))
    }
}

/// # Safety
/// `data` must point at `count` readable values that stay unchanged for `'a`, or `count` be 0.
pub unsafe fn array<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

/// Receives a result or an error sentence; copies it before it returns; must not unwind.
pub type Write = extern "C" fn(*mut c_void, *const c_void, usize);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sink {
    context: *mut c_void,
    write: Write,
}

impl Sink {
    pub fn put<T: Copy>(&self, values: &[T]) {
        (self.write)(self.context, values.as_ptr().cast(), std::mem::size_of_val(values));
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok = 0,
    InvalidArgument = 1,
    Unsupported = 2,
    ResourceExhausted = 3,
    Internal = 4,
}

#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub message: String,
}

impl Failure {
    pub fn invalid(message: impl Into<String>) -> Self {
        Failure { status: Status::InvalidArgument, message: message.into() }
    }
    pub fn unsupported(message: impl Into<String>) -> Self {
        Failure { status: Status::Unsupported, message: message.into() }
    }
    pub fn exhausted(message: impl Into<String>) -> Self {
        Failure { status: Status::ResourceExhausted, message: message.into() }
    }
}

/// Runs `body`; turns its error, or its panic, into a status and a sentence in the sink.
pub fn guard(sink: Sink, body: impl FnOnce() -> Result<(), Failure>) -> Status {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let reason = panic
                .downcast_ref::<&str>()
                .map(|s| s.to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            Failure { status: Status::Internal, message: format!("the text library failed: {reason}") }
        }
    };
    sink.put(failure.message.as_bytes());
    failure.status
}
