//! Text in XML and HTML.

/// Text for attributes and elements; what XML cannot carry is left out.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(character),
            odd if odd.is_control() || odd == '\u{fffe}' || odd == '\u{ffff}' => {}
            plain => escaped.push(plain),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_print_does_not_break_the_file() {
        assert_eq!(
            escaped("a<b>&\"c\"\x1b[31m\n"),
            "a&lt;b&gt;&amp;&quot;c&quot;[31m\n"
        );
    }
}
