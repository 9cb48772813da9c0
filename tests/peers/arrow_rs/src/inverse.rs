//! The value of 8 bytes that has a given XXH64.
//!
//! arrow-rs inserts and checks values only, while the layer "blocks" has hashes. For inputs of 8
//! bytes XXH64 is a bijection, so every hash has its value. Specification:
//! https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md

const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME_5: u64 = 0x27D4_EB2F_1656_67C5;

/// The bytes whose XXH64, with seed 0, is `hash`.
pub fn value_with_hash(hash: u64) -> [u8; 8] {
    let accumulator = before_avalanche(hash).wrapping_sub(PRIME_4);
    let mixed = divide(accumulator, PRIME_1).rotate_right(27) ^ PRIME_5.wrapping_add(8);
    divide(divide(mixed, PRIME_1).rotate_right(31), PRIME_2).to_le_bytes()
}

fn before_avalanche(hash: u64) -> u64 {
    let third = divide(hash ^ hash >> 32, PRIME_3);
    let second = divide(third ^ third >> 29 ^ third >> 58, PRIME_2);
    second ^ second >> 33
}

/// `number / odd` modulo 2^64. Each step of Newton's method doubles the number of right bits, of
/// which the first guess has 3.
fn divide(number: u64, odd: u64) -> u64 {
    let step = |inverse: u64| inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
    number.wrapping_mul((0..5).fold(odd, |inverse, _| step(inverse)))
}
