//! Decides which versions of HBase this client works with.

/// The oldest version with which Percolator works.
const VERSION_MIN: (u32, u32) = (2, 6);

/// Says why a version is too old; `None` if it is not, or if it cannot be read.
pub(crate) fn too_old(version: &str) -> Option<String> {
    let (major, minor) = VERSION_MIN;
    (numbers(version)? < VERSION_MIN).then(|| {
        format!(
            "HBase {version} may apply a change whose sync of the log failed at a later crash \
             (HBASE-27230): upgrade to {major}.{minor} or later"
        )
    })
}

/// The first two numbers of a version.
pub(crate) fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_version_is_refused_with_the_reason() {
        assert!(too_old("2.5.11").is_some_and(|why| why.contains("HBASE-27230")));
        for version in ["2.6.0", "2.6.1-hadoop3", "3.0.0-beta-2", "unreadable"] {
            assert_eq!(too_old(version), None, "{version}");
        }
    }
}
