//! Seeds that once showed something (`seeds.txt`).

/// A seed that once showed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Regression {
    /// The seed.
    pub seed: u64,
    /// What it showed.
    pub note: &'static str,
}

/// The seeds that once showed something, in the order of the file.
///
/// # Panics
/// If the file, which is part of the program, holds a line that is neither a comment nor a seed
/// with a note.
pub fn regressions() -> Vec<Regression> {
    let lines = include_str!("../seeds.txt").lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &'static str| {
        let (seed, note) = line.split_once(char::is_whitespace)?;
        Some(Regression { seed: seed.parse().ok()?, note: note.trim() })
    };
    lines.map(|line| parse(line).unwrap_or_else(|| panic!("seeds.txt: {line:?}"))).collect()
}
