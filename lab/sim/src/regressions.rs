//! Lists seeds that once had a finding (`seeds.txt`).

/// A seed that once had a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Regression {
    /// The seed.
    pub seed: u64,
    /// The finding, and the place of its fix or of its test.
    pub note: &'static str,
}

/// Returns the seeds that once had a finding, in the order of the file.
///
/// # Panics
/// If the file, which is compiled into the program, has a line that is neither a comment nor a
/// seed with a note.
pub fn regressions() -> Vec<Regression> {
    let lines = include_str!("../seeds.txt").lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &'static str| {
        let (seed, note) = line.split_once(char::is_whitespace)?;
        Some(Regression { seed: seed.parse().ok()?, note: note.trim() })
    };
    lines.map(|line| parse(line).unwrap_or_else(|| panic!("seeds.txt: {line:?}"))).collect()
}
