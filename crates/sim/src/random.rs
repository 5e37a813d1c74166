//! All randomness of a cluster, from one seed: UIDs, generated names, and the schedule.

/// The alphabet of generated names: no vowels and no ambiguous characters.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// `SplitMix64`: small, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream of numbers that depends on the seed alone.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next_u64() % (high.saturating_sub(low) + 1)
    }

    /// A UUID of version 4.
    pub(crate) fn uid(&mut self) -> String {
        let (a, b) = (self.next_u64(), self.next_u64());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            0x8000 | ((b >> 48) & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }

    /// The five characters that `generateName` adds.
    pub(crate) fn suffix(&mut self) -> String {
        (0..5).map(|_| char::from(ALPHABET[(self.next_u64() % ALPHABET.len() as u64) as usize])).collect()
    }
}

/// Go's `rand.SafeEncodeString`: maps each byte into the alphabet, as in revisions' names.
pub(crate) fn safe_encoded(text: &str) -> String {
    text.bytes().map(|b| char::from(ALPHABET[usize::from(b) % ALPHABET.len()])).collect()
}
