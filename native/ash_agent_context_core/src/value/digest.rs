//! Digests of long texts in pieces: that of a whole is computed from those of its parts, however it is cut.

/// Numbers are taken modulo this prime, 2^61 - 1.
const PRIME: u64 = (1 << 61) - 1;

/// The point at which the polynomial with the bytes as its coefficients is evaluated.
const BASE: u64 = 0x1b3a_74c5_9e2d_8f61 % PRIME;

/// Bytes read in one step.
const STEP: usize = 8;

/// The number that a byte adds, by its place in a step.
static TERMS: [[u64; 256]; STEP] = terms();

/// The base to the power of [`STEP`].
const STRIDE: u64 = power(BASE, STEP as u64);

/// The inverse of the base.
const INVERSE: u64 = power(BASE, PRIME - 2);

/// The digest of a text, and the numbers that are needed to append another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest {
    /// The length of the text in bytes.
    pub len: u64,
    hash: u64,
    /// The base to the power of the length.
    power: u64,
}

impl Digest {
    /// The digest of an empty text.
    pub const EMPTY: Self = Self {
        len: 0,
        hash: 0,
        power: 1,
    };

    /// Returns the digest of a text.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hash = 0;
        let mut chunks = bytes.chunks_exact(STEP);
        for chunk in &mut chunks {
            let added = chunk.iter().zip(&TERMS);
            // Eight numbers below 2^61 are one below 2^64.
            let added: u64 = added.map(|(byte, terms)| term(terms, *byte)).sum();
            hash = reduce(u128::from(hash) * u128::from(STRIDE) + u128::from(added));
        }
        for byte in chunks.remainder() {
            hash = reduce(u128::from(hash) * u128::from(BASE) + u128::from(coefficient(*byte)));
        }
        let len = bytes.len() as u64;
        Self {
            len,
            hash,
            power: power(BASE, len),
        }
    }

    /// Returns the digest of this text without its end, which is this other text.
    #[must_use]
    pub fn without_end(self, end: Self) -> Self {
        let shift = power(INVERSE, end.len);
        Self {
            len: self.len - end.len,
            hash: times(self.hash + PRIME - end.hash, shift),
            power: times(self.power, shift),
        }
    }

    /// Returns the digest of this text with another one after it.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self {
            len: self.len + next.len,
            hash: reduce(u128::from(self.hash) * u128::from(next.power) + u128::from(next.hash)),
            power: times(self.power, next.power),
        }
    }

    /// Returns it as text, with the length.
    pub fn to_text(self) -> String {
        format!("{}-{}", self.len, self.to_short_text())
    }

    /// Returns it as text, without the length.
    pub fn to_short_text(self) -> String {
        format!("{:016x}", self.hash)
    }
}

/// Never zero, so that zeros at the beginning count.
const fn coefficient(byte: u8) -> u64 {
    byte as u64 + 1
}

fn term(terms: &[u64; 256], byte: u8) -> u64 {
    terms.get(usize::from(byte)).copied().unwrap_or_default()
}

#[allow(clippy::indexing_slicing)] // reckoned by the compiler, which would say so
const fn terms() -> [[u64; 256]; STEP] {
    let mut all = [[0; 256]; STEP];
    let mut place = 0;
    while place < STEP {
        let power = power(BASE, (STEP - 1 - place) as u64);
        let mut byte = 0;
        while byte < 256 {
            all[place][byte] = times(coefficient(byte as u8), power);
            byte += 1;
        }
        place += 1;
    }
    all
}

const fn power(of: u64, mut to: u64) -> u64 {
    let (mut square, mut power) = (of, 1);
    while to > 0 {
        if to % 2 == 1 {
            power = times(power, square);
        }
        square = times(square, square);
        to /= 2;
    }
    power
}

const fn times(a: u64, b: u64) -> u64 {
    reduce(a as u128 * b as u128)
}

/// Reduces a number below 2^125 modulo the prime.
const fn reduce(number: u128) -> u64 {
    let once = (number & PRIME as u128) + (number >> 61);
    let twice = (once & PRIME as u128) + (once >> 61);
    let sum = twice as u64;
    if sum >= PRIME {
        sum - PRIME
    } else {
        sum
    }
}
