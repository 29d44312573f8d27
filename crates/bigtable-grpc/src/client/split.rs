//! Divides entries among requests. Each request stays within the server's limits, and small
//! enough not to hold up others on the same connection.

/// Size beyond which a request gets no further entry.
pub(super) const BATCH_BYTES_MAX: usize = 1 << 20;

/// The size of an entry or of a request, or the bound on a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) entries: usize,
    pub(super) bytes: usize,
    pub(super) mutations: usize,
}

impl Size {
    fn and(self, other: Size) -> Size {
        Size {
            entries: self.entries + other.entries,
            bytes: self.bytes + other.bytes,
            mutations: self.mutations + other.mutations,
        }
    }

    fn fits(self, max: Size) -> bool {
        self.entries <= max.entries && self.bytes <= max.bytes && self.mutations <= max.mutations
    }
}

/// Divides the entries into requests, in their order. An entry beyond the bound gets a request
/// of its own.
pub(super) fn split<T>(
    entries: impl IntoIterator<Item = T>,
    max: Size,
    size: impl Fn(&T) -> Size,
) -> Vec<Vec<T>> {
    let mut requests: Vec<Vec<T>> = Vec::new();
    let mut last = Size::default();
    for entry in entries {
        let size = size(&entry);
        let grown = last.and(size);
        match requests.last_mut().filter(|_| grown.fits(max)) {
            Some(request) => {
                request.push(entry);
                last = grown;
            }
            None => {
                requests.push(vec![entry]);
                last = size;
            }
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_is_larger_than_may_be_unless_by_one_entry() {
        let max = Size { entries: 3, bytes: 10, mutations: 5 };
        let of = |sizes: &[(usize, usize)]| {
            let size = |&(bytes, mutations): &(usize, usize)| Size { entries: 1, bytes, mutations };
            let requests = split(sizes.iter().copied(), max, size);
            assert_eq!(requests.concat(), sizes, "in their order, each once");
            requests.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert!(of(&[]).is_empty());
        assert_eq!(of(&[(0, 0); 7]), [3, 3, 1]);
        assert_eq!(of(&[(5, 0), (5, 0), (1, 0)]), [2, 1]);
        assert_eq!(of(&[(0, 4), (0, 1), (0, 1)]), [2, 1]);
        assert_eq!(of(&[(1, 1), (11, 1), (1, 1), (1, 6), (1, 1)]), [1, 1, 1, 1, 1]);
    }
}
