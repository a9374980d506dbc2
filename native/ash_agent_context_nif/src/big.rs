//! Integers beyond 64 bits, which go through the external format. Rustler's own way needs another version of num-bigint
//! than jiter has, and both are 60 KB.

use num_bigint::{BigInt, Sign};
use rustler::{Env, Term};

const VERSION: u8 = 131;
const SMALL: u8 = 110;
const LARGE: u8 = 111;

/// Reads an integer; `None` for any other term.
pub fn decode(term: Term<'_>) -> Option<BigInt> {
    let external = term.is_integer().then(|| term.to_binary())?;
    let (sign, bytes) = match external.as_slice() {
        [VERSION, SMALL, _, sign, bytes @ ..] => (sign, bytes),
        [VERSION, LARGE, _, _, _, _, sign, bytes @ ..] => (sign, bytes),
        _ => return None,
    };
    let sign = if *sign == 0 { Sign::Plus } else { Sign::Minus };
    Some(BigInt::from_bytes_le(sign, bytes))
}

/// Makes an integer; `None` if the VM has none of that size.
pub fn encode<'a>(env: Env<'a>, integer: &BigInt) -> Option<Term<'a>> {
    let (sign, bytes) = integer.to_bytes_le();
    let mut external = vec![VERSION];
    if let Ok(count) = u8::try_from(bytes.len()) {
        external.extend([SMALL, count]);
    } else {
        external.push(LARGE);
        external.extend(u32::try_from(bytes.len()).ok()?.to_be_bytes());
    }
    external.push(u8::from(sign == Sign::Minus));
    external.extend(bytes);
    env.binary_to_term(&external).map(|(term, _)| term)
}
