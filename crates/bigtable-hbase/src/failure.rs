//! Sorts the failures of calls to HBase by what the caller does next.
//!
//! A server names the Java class of its exception. Some classes prove that nothing was
//! applied. The caller then looks the region up again, or waits, and repeats. If a repetition
//! cannot help, the request is refused, and the caller does not repeat it.
//!
//! A class that is not listed here proves nothing about a mutation, with one exception. If a flag
//! or the class's name states that a repetition cannot help, nothing was applied. The classes of
//! scanners prove nothing either. Without proof, the caller reads the row's guard to find out
//! whether the mutation was applied (`guard.rs`).

use bigtable::Error;

use crate::proto::{ExceptionResponse, NameBytesPair};

/// The reason why a call failed.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// Nothing was applied. The region has moved, or its server cannot be reached: look it up
    /// again.
    Moved(String),
    /// Nothing was applied: wait, then repeat.
    Busy(String),
    /// Nothing was applied, and a repetition would not help.
    Refused(String),
    /// Nothing was applied: the server refuses this client, or the client the server, until a
    /// person acts.
    Denied(String),
    /// A mutation may have been applied, or may be applied later. A read can be repeated.
    Lost(String),
}

/// Classes after which the region is looked up again.
const MOVED: &[&str] = &[
    "NotServingRegionException",
    "WrongRegionException",
    "RegionMovedException",
    "RegionServerStoppedException",
    "RegionServerAbortedException",
    "MasterStoppedException",
    "NotLeaderException",
];

/// Classes of a server that will accept the same request later.
const BUSY: &[&str] = &[
    "RegionOpeningException",
    "RegionTooBusyException",
    "PleaseHoldException",
    "RpcThrottlingException",
    "CallQueueTooBigException",
    "CallDroppedException",
    "ServerNotRunningYetException",
    "RetryImmediatelyException",
    "MultiActionResultTooLarge",
];

/// Classes of a scanner that no longer exists; only reads get them.
const SCANNER: &[&str] = &[
    "UnknownScannerException",
    "ScannerResetException",
    "OutOfOrderScannerNextException",
    "LeaseException",
];

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Moved(why)
            | Failure::Busy(why)
            | Failure::Refused(why)
            | Failure::Denied(why)
            | Failure::Lost(why) => f.write_str(why),
        }
    }
}

impl Failure {
    /// Chooses by the exception's class. With `do_not_retry` the server states that a
    /// repetition cannot help.
    fn of_class(class: &str, text: &str, do_not_retry: bool) -> Self {
        let short = class.rsplit(['.', '$']).next().unwrap_or(class);
        let first_line = text.lines().next().unwrap_or_default();
        let why = if first_line.contains(short) || first_line.is_empty() {
            first_line.to_owned()
        } else {
            format!("{short}: {first_line}")
        };
        let why = if why.is_empty() { short.to_owned() } else { why };
        match short {
            _ if MOVED.contains(&short) => Failure::Moved(why),
            _ if BUSY.contains(&short) => Failure::Busy(why),
            _ if SCANNER.contains(&short) => Failure::Lost(why),
            "AccessDeniedException" => Failure::Denied(why),
            _ if do_not_retry || short.ends_with("DoNotRetryIOException") => Failure::Refused(why),
            "TableNotFoundException"
            | "NoSuchColumnFamilyException"
            | "FailedSanityCheckException"
            | "RequestTooBigException" => Failure::Refused(why),
            _ => Failure::Lost(why),
        }
    }

    /// True if a repetition would not help.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Failure::Refused(_) | Failure::Denied(_))
    }

    /// The error of a mutation that could not be settled.
    pub(crate) fn of_mutation(self) -> Error {
        match self {
            Failure::Moved(why) | Failure::Busy(why) => Error::Unavailable { why },
            Failure::Refused(why) => Error::InvalidRequest(why),
            Failure::Denied(why) => Error::Refused(why),
            Failure::Lost(why) => Error::Unknown { why },
        }
    }

    /// The error of a read, which changes nothing.
    pub(crate) fn of_read(self) -> Error {
        match self {
            Failure::Moved(why) | Failure::Busy(why) | Failure::Lost(why) => {
                Error::Unavailable { why }
            }
            Failure::Refused(why) => Error::InvalidRequest(why),
            Failure::Denied(why) => Error::Refused(why),
        }
    }
}

impl From<&ExceptionResponse> for Failure {
    fn from(exception: &ExceptionResponse) -> Self {
        let class = exception.exception_class_name.as_deref().unwrap_or("an unnamed exception");
        let text = exception.stack_trace.as_deref().unwrap_or_default();
        Failure::of_class(class, text, exception.do_not_retry.unwrap_or(false))
    }
}

impl From<&NameBytesPair> for Failure {
    /// Converts an exception that an answer reports for one region or one action.
    fn from(exception: &NameBytesPair) -> Self {
        let text = String::from_utf8_lossy(exception.value.as_deref().unwrap_or_default());
        Failure::of_class(&exception.name, &text, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(class: &str, do_not_retry: bool) -> Failure {
        Failure::from(&ExceptionResponse {
            exception_class_name: Some(class.to_owned()),
            do_not_retry: Some(do_not_retry),
            ..ExceptionResponse::default()
        })
    }

    #[test]
    fn a_class_says_what_to_do_next() {
        let hbase = |class: &str| format!("org.apache.hadoop.hbase.{class}");
        assert!(matches!(of(&hbase("NotServingRegionException"), false), Failure::Moved(_)));
        assert!(matches!(of(&hbase("RegionTooBusyException"), false), Failure::Busy(_)));
        assert!(matches!(of(&hbase("TableNotFoundException"), false), Failure::Refused(_)));
        assert!(matches!(of("java.io.IOException", true), Failure::Refused(_)));
        // The same, whether the server says that a repetition would not help or not.
        for do_not_retry in [false, true] {
            let denied = of(&hbase("security.AccessDeniedException"), do_not_retry);
            assert!(matches!(denied.of_mutation(), Error::Refused(_)));
        }
        // The server may have applied the mutation before it failed.
        assert!(matches!(of("java.io.IOException", false), Failure::Lost(_)));
    }
}
