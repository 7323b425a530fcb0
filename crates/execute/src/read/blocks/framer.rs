//! Puts each JSON object of a text on a line of its own, as its bytes arrive.
//!
//! The objects are the items of one list, or stand one behind the other. Line breaks inside of them
//! become spaces, which mean the same. Any other text between objects is an error, and so is a list
//! or an object without an end: rows of a truncated file would be missing silently.

use crate::read::{ObjectLayout, without_mark};

/// The state of a text behind the bytes so far.
#[derive(Debug)]
pub struct Framer {
    frame: ObjectLayout,
    place: ObjectPlace,
    /// Number of open objects and lists.
    depth: usize,
    /// The first bytes, which may be a byte order mark.
    first: Vec<u8>,
    began: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectPlace {
    /// Before the list.
    Begin,
    /// Before the first object, or one behind a comma.
    Before { first: bool },
    /// Inside of an object.
    Object,
    /// Inside of a text in an object.
    Text,
    /// Behind a backslash in a text.
    Escape,
    /// Behind an object.
    Behind,
    /// Behind the list.
    End,
}

impl Framer {
    /// Creates a framer for the beginning of a file.
    pub fn new(frame: ObjectLayout) -> Self {
        let place = match frame {
            ObjectLayout::List => ObjectPlace::Begin,
            ObjectLayout::Objects => ObjectPlace::Before { first: true },
        };
        Self { frame, place, depth: 0, first: Vec::new(), began: false }
    }

    /// Adds the objects of the next bytes to a text, each with a line break behind it. An error is
    /// the reason; objects before it were added.
    pub fn next(&mut self, bytes: &[u8], text: &mut Vec<u8>) -> Result<(), &'static str> {
        if self.began {
            return bytes.iter().try_for_each(|byte| self.add(*byte, text));
        }
        self.first.extend_from_slice(bytes);
        match self.first.len() {
            0..3 => Ok(()),
            _ => self.begin(text),
        }
    }

    /// Ends the text.
    pub fn end(&mut self, text: &mut Vec<u8>) -> Result<(), &'static str> {
        self.begin(text)?;
        match (self.place, self.frame) {
            (ObjectPlace::End, _) | (ObjectPlace::Behind, ObjectLayout::Objects) => Ok(()),
            (ObjectPlace::Begin, _) | (ObjectPlace::Before { .. }, ObjectLayout::Objects) => Ok(()),
            (ObjectPlace::Before { .. } | ObjectPlace::Behind, ObjectLayout::List) => {
                Err("the list does not end")
            }
            (ObjectPlace::Object | ObjectPlace::Text | ObjectPlace::Escape, _) => {
                Err("the object does not end")
            }
        }
    }

    fn begin(&mut self, text: &mut Vec<u8>) -> Result<(), &'static str> {
        self.began = true;
        let first = std::mem::take(&mut self.first);
        without_mark(&first).iter().try_for_each(|byte| self.add(*byte, text))
    }

    fn add(&mut self, byte: u8, text: &mut Vec<u8>) -> Result<(), &'static str> {
        match self.place {
            ObjectPlace::Object => self.in_object(byte, text),
            ObjectPlace::Text | ObjectPlace::Escape => {
                if byte == b'\n' {
                    return Err("a text in it has a line break");
                }
                text.push(byte);
                self.place = match (self.place, byte) {
                    (ObjectPlace::Text, b'\\') => ObjectPlace::Escape,
                    (ObjectPlace::Text, b'"') => ObjectPlace::Object,
                    _ => ObjectPlace::Text,
                };
            }
            _ if byte.is_ascii_whitespace() => {}
            place => self.between(place, byte, text)?,
        }
        Ok(())
    }

    fn in_object(&mut self, byte: u8, text: &mut Vec<u8>) {
        match byte {
            b'\n' | b'\r' => return text.push(b' '),
            b'"' => self.place = ObjectPlace::Text,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        text.push(byte);
        if self.depth == 0 {
            text.push(b'\n');
            self.place = ObjectPlace::Behind;
        }
    }

    /// Handles a byte that is no space, outside of objects.
    fn between(
        &mut self,
        place: ObjectPlace,
        byte: u8,
        text: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        self.place = match (place, byte, self.frame) {
            (ObjectPlace::Begin, b'[', _) => ObjectPlace::Before { first: true },
            (ObjectPlace::Before { .. }, b'{', _)
            | (ObjectPlace::Behind, b'{', ObjectLayout::Objects) => {
                self.depth = 1;
                text.push(b'{');
                ObjectPlace::Object
            }
            (
                ObjectPlace::Before { first: true } | ObjectPlace::Behind,
                b']',
                ObjectLayout::List,
            ) => ObjectPlace::End,
            (ObjectPlace::Behind, b',', ObjectLayout::List) => ObjectPlace::Before { first: false },
            (ObjectPlace::Behind, _, ObjectLayout::List) => {
                return Err("there is no comma before it");
            }
            (ObjectPlace::End, ..) => return Err("something stands behind the list"),
            _ => return Err("it is not a JSON object"),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(
        frame: ObjectLayout,
        text: &str,
        step: usize,
    ) -> Result<String, (String, &'static str)> {
        let mut framer = Framer::new(frame);
        let mut found = Vec::new();
        let mut parts = text.as_bytes().chunks(step);
        let read = parts.try_for_each(|part| framer.next(part, &mut found));
        let read = read.and_then(|()| framer.end(&mut found));
        let found = String::from_utf8(found).unwrap();
        read.map(|()| found.clone()).map_err(|why| (found, why))
    }

    #[test]
    fn each_object_is_in_a_line_however_the_bytes_arrive() {
        use ObjectLayout::*;
        for (frame, text, expected) in [
            (
                List,
                "\u{feff}[{\"a\":1},\n {\"a\":[{\"b\":2}]}]\n",
                "{\"a\":1}\n{\"a\":[{\"b\":2}]}\n",
            ),
            (List, "[{\n\"a\": \"}]\\\"{\"\r\n}]", "{ \"a\": \"}]\\\"{\"  }\n"),
            (List, " [ ] ", ""),
            (List, "", ""),
            (Objects, "{\n\"a\":1}\n\n{\"a\":2}{}", "{ \"a\":1}\n{\"a\":2}\n{}\n"),
            (Objects, "{\"a\":\"\\\\\"}", "{\"a\":\"\\\\\"}\n"),
        ] {
            for step in 1..9 {
                assert_eq!(framed(frame, text, step).as_deref(), Ok(expected), "{text} by {step}");
            }
        }
    }

    #[test]
    fn whatever_else_there_is_is_an_error() {
        use ObjectLayout::*;
        for (frame, text, objects, why) in [
            (List, "[{\"a\":1},", 1, "the list does not end"),
            (List, "[{\"a\":1}", 1, "the list does not end"),
            (List, "[{\"a\":1},{\"a\":", 1, "the object does not end"),
            (List, "[{}{}]", 1, "no comma"),
            (List, "[{},]", 1, "not a JSON object"),
            (List, "[1]", 0, "not a JSON object"),
            (List, "[{}] {}", 1, "behind the list"),
            (List, "[{\"a\":\"x\ny\"}]", 0, "line break"),
            (Objects, "{},{}", 1, "not a JSON object"),
            (Objects, "{\"a\":[1,2}", 0, "does not end"),
        ] {
            let (found, reason) = framed(frame, text, 3).unwrap_err();
            assert!(reason.contains(why), "{text}: {reason}");
            assert_eq!(found.matches("\n").count(), objects, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_framed_or_refused(text in "[\\[\\]{}\",\\\\\n a]{0,30}") {
            let _ = (framed(ObjectLayout::List, &text, 2), framed(ObjectLayout::Objects, &text, 2));
        }
    }
}
