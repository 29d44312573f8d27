//! Encodes and decodes every request and reply between simulated processes.
//!
//! Every message crosses the wire as bytes, so a value that does not survive encoding shows in
//! every run. Decoding is the inverse of encoding, consumes all bytes, and never panics.
//! Integers are big-endian.

mod messages;
mod table;

pub(crate) use messages::{
    LockReply, LockRequest, OracleReply, OracleRequest, RowPart, RowRead, StoreReply, StoreRequest,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A value that can be sent.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut BytesMut);

    /// Takes the value from the front of `input`. Returns `None` if the bytes do not have this
    /// form.
    fn take(input: &mut Bytes) -> Option<Self>;
}

/// Encodes a message.
pub(crate) fn encode(message: &impl Wire) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    message.put(&mut out);
    out.freeze()
}

/// Decodes a message. Returns `None` unless the bytes are exactly one.
pub(crate) fn decode<T: Wire>(mut bytes: Bytes) -> Option<T> {
    let message = T::take(&mut bytes)?;
    bytes.is_empty().then_some(message)
}

/// Encodes the fields of a struct one after the other.
macro_rules! wire_struct {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl Wire for $name {
            fn put(&self, out: &mut BytesMut) {
                $(self.$field.put(out);)*
            }
            fn take(input: &mut Bytes) -> Option<Self> {
                Some($name { $($field: Wire::take(input)?),* })
            }
        }
    )*};
}

/// Encodes an enum as a tag and the fields of its variant. After `else`, all other variants are
/// encoded as one of these.
macro_rules! wire_enum {
    ($name:ident {
        $($tag:literal => $variant:ident $(($($field:ident),*))? $({$($part:ident),*})?),* $(,)?
        $(else $other:ident => $instead:expr $(,)?)?
    }) => {
        impl Wire for $name {
            fn put(&self, out: &mut BytesMut) {
                match self {
                    $($name::$variant $(($($field),*))? $({$($part),*})? => {
                        out.put_u8($tag);
                        $($($field.put(out);)*)?
                        $($($part.put(out);)*)?
                    })*
                    $($other => $instead.put(out),)?
                }
            }
            fn take(input: &mut Bytes) -> Option<Self> {
                Some(match u8::take(input)? {
                    $($tag => {
                        $($(let $field = Wire::take(input)?;)*)?
                        $($(let $part = Wire::take(input)?;)*)?
                        $name::$variant $(($($field),*))? $({$($part),*})?
                    })*
                    _ => return None,
                })
            }
        }
    };
}

/// Encodes a value as another that has the same meaning. Decoding fails where that has no value.
macro_rules! wire_as {
    ($($name:ident as $other:ty: |$it:ident| $to:expr, $from:expr;)*) => {$(
        impl Wire for $name {
            fn put(&self, out: &mut BytesMut) {
                let $it = self;
                $to.put(out);
            }
            fn take(input: &mut Bytes) -> Option<Self> {
                <$other as Wire>::take(input).and_then($from)
            }
        }
    )*};
}

pub(crate) use {wire_as, wire_enum, wire_struct};

macro_rules! wire_integer {
    ($($type:ty, $put:ident, $get:ident, $size:literal;)*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut BytesMut) {
                out.$put(*self);
            }
            fn take(input: &mut Bytes) -> Option<Self> {
                (input.len() >= $size).then(|| input.$get())
            }
        }
    )*};
}

wire_integer! {
    u8, put_u8, get_u8, 1;
    u32, put_u32, get_u32, 4;
    u64, put_u64, get_u64, 8;
    u128, put_u128, get_u128, 16;
}

impl Wire for Bytes {
    fn put(&self, out: &mut BytesMut) {
        put_length(self.len(), out);
        out.put_slice(self);
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        let length = take_length(input)?;
        (length <= input.len()).then(|| input.split_to(length))
    }
}

wire_as! {
    bool as u8: |it| u8::from(*it), |byte| [false, true].get(usize::from(byte)).copied();
    usize as u64: |it| *it as u64, |number| usize::try_from(number).ok();
    String as Bytes: |it| Bytes::copy_from_slice(it.as_bytes()), |bytes| {
        std::str::from_utf8(&bytes).ok().map(str::to_owned)
    };
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut BytesMut) {
        out.put_u8(u8::from(self.is_some()));
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        if bool::take(input)? { T::take(input).map(Some) } else { Some(None) }
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn put(&self, out: &mut BytesMut) {
        out.put_u8(u8::from(self.is_ok()));
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        if bool::take(input)? { T::take(input).map(Ok) } else { E::take(input).map(Err) }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut BytesMut) {
        put_length(self.len(), out);
        for value in self {
            value.put(out);
        }
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        let length = take_length(input)?;
        // Every value has at least one byte, so a length above the remaining bytes is refused.
        if length > input.len() {
            return None;
        }
        let mut values = Vec::with_capacity(length);
        for _ in 0..length {
            values.push(T::take(input)?);
        }
        Some(values)
    }
}

fn put_length(length: usize, out: &mut BytesMut) {
    u32::try_from(length).expect("a message is shorter than 4 GiB").put(out);
}

fn take_length(input: &mut Bytes) -> Option<usize> {
    usize::try_from(u32::take(input)?).ok()
}

#[cfg(test)]
mod tests {
    use bigtable::{ConditionalMutation, Error, Page};
    use proptest::prelude::*;

    use super::*;

    /// Decodes a message from the front of the bytes, and encodes it again.
    fn check<T: Wire>(bytes: &Bytes) -> Result<(), TestCaseError> {
        let mut rest = bytes.clone();
        if let Some(message) = T::take(&mut rest) {
            let used = bytes.slice(..bytes.len() - rest.len());
            prop_assert_eq!(encode(&message), used);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        /// Most bytes are zero or small, so that most of them are messages.
        #[test]
        fn every_message_has_one_encoding(
            bytes in proptest::collection::vec(
                prop_oneof![9 => Just(0_u8), 4 => 1..8_u8, 1 => any::<u8>()], 200,
            ),
        ) {
            let bytes = Bytes::from(bytes);
            check::<StoreRequest>(&bytes)?;
            check::<StoreReply>(&bytes)?;
            check::<OracleRequest>(&bytes)?;
            check::<OracleReply>(&bytes)?;
            check::<LockRequest>(&bytes)?;
            check::<LockReply>(&bytes)?;
            check::<ConditionalMutation>(&bytes)?;
            check::<Result<Page, Error>>(&bytes)?;
        }
    }
}
