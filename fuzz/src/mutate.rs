//! Changes of known inputs, where no libFuzzer is at hand.

use fastrand::Rng;

/// Longest input that is made.
const LONGEST: usize = 8 * 1024;

/// What parsers tend to trip over.
const ODDITIES: &[&[u8]] = &[
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\n\n",
    b"\"",
    b"\\",
    b"\\ud800",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"null",
    b"1e400",
    b"-0",
    b"$(tt.",
    b":60",
    b"24:00",
    b"+23:59",
    b".999999999999",
    b"0000-01-01",
    b"\xc5\xbf",
    b"\xe2\x84\xaa",
];

/// Makes inputs out of known ones. The same seed makes the same inputs.
pub struct Mutator {
    random: Rng,
    known: Vec<Vec<u8>>,
}

impl Mutator {
    /// Begins from these inputs.
    ///
    /// # Panics
    ///
    /// When there are none.
    #[must_use]
    pub fn new(seed: u64, known: Vec<Vec<u8>>) -> Self {
        assert!(!known.is_empty(), "nothing to begin from");
        Self { random: Rng::with_seed(seed), known }
    }

    /// The next input: one of the known, with one to four changes.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.any().to_vec();
        for _ in 0..self.random.usize(1..=4) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn any(&mut self) -> &[u8] {
        &self.known[self.random.usize(..self.known.len())]
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.random.usize(..=input.len());
        let end = (at + self.random.usize(1..=16)).min(input.len());
        match self.random.u8(..6) {
            0 => drop(input.drain(at..end)),
            1 => insert(input, at, ODDITIES[self.random.usize(..ODDITIES.len())]),
            2 => {
                let copied = input[at..end].to_vec();
                let to = self.random.usize(..=input.len());
                insert(input, to, &copied);
            }
            3 => {
                // The rest of another input.
                let other = self.any().to_vec();
                let from = self.random.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            4 => input[at..end].iter_mut().for_each(|byte| *byte = self.random.u8(..)),
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.random.u8(..8);
                }
            }
        }
    }
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    input.splice(at..at, bytes.iter().copied());
}
