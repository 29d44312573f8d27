//! Numbers the tables of a request.

/// The tables of a request, each once.
#[derive(Debug, Default)]
pub(super) struct Spanned(Vec<String>);

impl Spanned {
    /// The number of a table in the request.
    pub(super) fn number(&mut self, path: &str) -> u32 {
        // A request has few tables.
        let place = self.0.iter().position(|known| known == path).unwrap_or_else(|| {
            self.0.push(path.to_owned());
            self.0.len() - 1
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// The tables, in the order of their numbers.
    pub(super) fn names(self) -> Vec<String> {
        self.0
    }
}
