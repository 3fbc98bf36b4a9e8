//! Escaping text for XML and HTML.

/// Escapes text for attributes and elements. Drops characters that XML does not permit.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(character),
            _ if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => {}
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped_and_control_characters_are_removed() {
        assert_eq!(
            escaped("a<b>&\"c\"\x1b[31m\n"),
            "a&lt;b&gt;&amp;&quot;c&quot;[31m\n"
        );
    }
}
