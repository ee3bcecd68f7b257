//! How much one caller's texts may cost. Merging a word of n bytes takes about n log n steps of 50 to 100 ns, and a word
//! may be as long as the text. A count of steps, not a clock: the same text is taken or refused on every machine.
use crate::ffi::Failure;

pub struct Work {
    left: u64,
}

impl Work {
    pub fn new(left: u64) -> Work {
        Work { left }
    }

    pub fn left(&self) -> u64 {
        self.left
    }

    /// Before a word that is not known is merged.
    pub fn take(&mut self, bytes: usize) -> Result<(), Failure> {
        let steps = bytes as u64 * u64::from(usize::BITS - bytes.leading_zeros());
        match self.left.checked_sub(steps) {
            Some(left) => self.left = left,
            None => {
                self.left = 0;
                return Err(Failure::exhausted("takes too long to tokenise: too much of it is long runs without a space"));
            }
        }
        Ok(())
    }
}
