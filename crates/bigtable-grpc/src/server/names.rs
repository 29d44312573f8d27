//! Parses and builds names of resources: `projects/P/instances/I/tables/T`.

use bigtable::TABLE_NAME_BYTES_MAX;
use tonic::Status;

/// Longest part of a name, in bytes.
const PART_BYTES_MAX: usize = 128;

/// Checks the name of an instance.
pub(crate) fn check_instance(name: &str) -> Result<(), Status> {
    parts(name, &["projects", "instances"], "projects/P/instances/I").map(|_| ())
}

/// Checks the name of a project.
pub(crate) fn check_project(name: &str) -> Result<(), Status> {
    parts(name, &["projects"], "projects/P").map(|_| ())
}

/// Checks the name of a table.
pub(crate) fn check_table(name: &str) -> Result<(), Status> {
    const FORM: &str = "projects/P/instances/I/tables/T";
    parts(name, &["projects", "instances", "tables"], FORM).map(|_| ())
}

/// Splits a name below an instance, `projects/P/instances/I/KIND/X`, into the instance and the
/// last part.
pub(crate) fn below_instance<'a>(name: &'a str, kind: &str) -> Result<(&'a str, &'a str), Status> {
    let form = format!("projects/P/instances/I/{kind}/X");
    let parts = parts(name, &["projects", "instances", kind], &form)?;
    let last = parts[2];
    Ok((&name[..name.len() - last.len() - kind.len() - 2], last))
}

/// Builds the name of a new table of an instance.
pub(crate) fn new_table(instance: &str, id: &str) -> Result<String, Status> {
    check_instance(instance)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let sound = id.as_bytes().first().is_some_and(begins)
        && id.len() <= TABLE_NAME_BYTES_MAX
        && id.bytes().all(allowed);
    if !sound {
        return Err(Status::invalid_argument(format!(
            "table id {id:?} is not of the form [_a-zA-Z0-9][-_.a-zA-Z0-9]{{0,49}}"
        )));
    }
    Ok(format!("{instance}/tables/{id}"))
}

/// Splits a name, and returns the parts after each of `kinds`.
fn parts<'a>(name: &'a str, kinds: &[&str], form: &str) -> Result<Vec<&'a str>, Status> {
    let wrong = || Status::invalid_argument(format!("{name:?} is not of the form {form}"));
    let mut words = name.split('/');
    let mut found = Vec::new();
    for kind in kinds {
        let (Some(word), Some(part)) = (words.next(), words.next()) else { return Err(wrong()) };
        if word != *kind || part.is_empty() || part.len() > PART_BYTES_MAX {
            return Err(wrong());
        }
        found.push(part);
    }
    if words.next().is_some() { Err(wrong()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        assert!(check_table("projects/p/instances/i/tables/t").is_ok());
        for bad in ["", "t", "projects/p/instances/i", "projects//instances/i/tables/t"] {
            assert!(check_table(bad).is_err(), "{bad}");
        }
        assert!(check_table("projects/p/instances/i/tables/t/x").is_err());
        assert_eq!(
            below_instance("projects/p/instances/i/clusters/c", "clusters").unwrap(),
            ("projects/p/instances/i", "c")
        );
        assert_eq!(
            new_table("projects/p/instances/i", "t-1.x").unwrap(),
            "projects/p/instances/i/tables/t-1.x"
        );
        for bad in ["", ".t", "-t", "a b", "é", &"x".repeat(51)] {
            assert!(new_table("projects/p/instances/i", bad).is_err(), "{bad}");
        }
    }
}
