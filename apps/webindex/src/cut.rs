//! Cuts text at a limit in bytes, without cutting a character.

/// Returns as much of the text as fits into `bytes`.
pub(crate) fn at_bytes(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    // A character has at most four bytes, and the start of the text is a boundary.
    let end = (bytes.saturating_sub(3)..=bytes).rev().find(|&end| text.is_char_boundary(end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole() {
        for (bytes, cut) in [
            (0, ""),
            (1, "a"),
            (2, "a"),
            (3, "aü"),
            (4, "aü"),
            (6, "aü"),
            (7, "aü🦀"),
            (99, "aü🦀"),
        ] {
            assert_eq!(at_bytes("aü🦀", bytes), cut, "{bytes}");
        }
        assert_eq!(at_bytes("", 0), "");
    }
}
