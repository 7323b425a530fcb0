//! Escaping of untrusted text in HTML.
//!
//! Invariant: SQL, names and messages reach the page only through [`Escaped`].

use std::fmt::{self, Display, Write};

/// Shows a value with HTML's special characters escaped, for text and for attributes.
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(f), "{}", self.0)
    }
}

struct Escaper<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.write_str("&amp;")?,
                '<' => self.0.write_str("&lt;")?,
                '>' => self.0.write_str("&gt;")?,
                '"' => self.0.write_str("&quot;")?,
                '\'' => self.0.write_str("&#39;")?,
                // Not allowed in HTML at all.
                c if c.is_control() && !matches!(c, '\n' | '\t') => {
                    self.0.write_char('\u{fffd}')?
                }
                c => self.0.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_and_control_characters_are_escaped() {
        let untrusted = "</pre><script x='\"'>&\0";
        assert_eq!(
            Escaped(untrusted).to_string(),
            "&lt;/pre&gt;&lt;script x=&#39;&quot;&#39;&gt;&amp;\u{fffd}"
        );
    }
}
