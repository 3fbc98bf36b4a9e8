//! Configuration files: relaxed JSON, whose lists are expanded to all combinations.
//!
//! Words need no quotes, commas are optional, and a line that begins with `#` is a comment. Each
//! object represents all combinations of the values of its keys, except keys whose lists are sets
//! of flags.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};

/// A configuration: one value for each key.
pub(super) type Config = BTreeMap<String, String>;

/// The keys whose lists are sets of flags.
const FLAG_KEYS: [&str; 9] = [
    "constant_caps",
    "mode",
    "mr_mode",
    "msg_flags",
    "rx_cq_bind_flags",
    "tx_cq_bind_flags",
    "rx_op_flags",
    "tx_op_flags",
    "test_flags",
];
/// The keys whose values are combined.
const COMBINED_KEYS: [&str; 17] = [
    "node",
    "service",
    "prov_name",
    "test_type",
    "test_class",
    "class_function",
    "ep_type",
    "comp_type",
    "av_type",
    "eq_wait_obj",
    "cq_wait_obj",
    "cntr_wait_obj",
    "progress",
    "threading",
    "op",
    "datatype",
    "cq_format",
];

/// Parses a file into all configurations, in the order of the objects.
///
/// # Errors
/// The part that is invalid.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<Config>> {
    let mut tokens = split_tokens(text).into_iter().peekable();
    let mut configs = Vec::new();
    while let Some(token) = tokens.next() {
        match token.as_str() {
            "{" => {
                let mut lists = Vec::new();
                loop {
                    match tokens.next().as_deref() {
                        Some("}") => break,
                        Some(key) if !is_bracket(key) => {
                            check_key(key)?;
                            lists.push((key.to_owned(), parse_values(key, &mut tokens)?));
                        }
                        other => bail!("{other:?} where a key or }} is expected"),
                    }
                }
                configs.extend(expand(&lists));
            }
            "[" | "]" => {}
            other => bail!("{other:?} outside an object"),
        }
    }
    ensure!(!configs.is_empty(), "the file has no configuration");
    Ok(configs)
}

fn check_key(key: &str) -> anyhow::Result<()> {
    let is_valid = FLAG_KEYS.contains(&key) || COMBINED_KEYS.contains(&key);
    ensure!(is_valid, "unknown key {key:?}");
    Ok(())
}

fn parse_values(
    key: &str,
    tokens: &mut impl Iterator<Item = String>,
) -> anyhow::Result<Vec<String>> {
    match tokens.next().as_deref() {
        Some("[") => {}
        Some(word) if !is_bracket(word) => return Ok(vec![word.to_owned()]),
        other => bail!("{key}: {other:?} where a value is expected"),
    }
    let mut values = Vec::new();
    loop {
        match tokens.next().as_deref() {
            Some("]") => break,
            Some(word) if !is_bracket(word) => values.push(word.to_owned()),
            other => bail!("{key}: {other:?} in a list"),
        }
    }
    // A set of flags may be empty.
    ensure!(
        !values.is_empty() || FLAG_KEYS.contains(&key),
        "{key}: the list is empty"
    );
    Ok(values)
}

fn is_bracket(token: &str) -> bool {
    matches!(token, "{" | "}" | "[" | "]")
}

/// Splits a text into words and brackets. Colons and commas only separate words.
fn split_tokens(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let mut tokens = Vec::new();
    for line in lines {
        let mut word = String::new();
        for character in line.chars().chain([' ']) {
            let is_separator = matches!(character, '{' | '}' | '[' | ']' | ':' | ',' | '"' | '\'');
            if !is_separator && !character.is_whitespace() {
                word.push(character);
                continue;
            }
            if !word.is_empty() {
                tokens.push(std::mem::take(&mut word));
            }
            if is_bracket(character.encode_utf8(&mut [0; 4])) {
                tokens.push(character.to_string());
            }
        }
    }
    tokens
}

fn expand(lists: &[(String, Vec<String>)]) -> Vec<Config> {
    let mut configs = vec![Config::new()];
    for (key, values) in lists {
        let values = if FLAG_KEYS.contains(&key.as_str()) {
            vec![values.join("|")]
        } else {
            values.clone()
        };
        let insert = |config: &Config, value: &String| {
            let mut config = config.clone();
            config.insert(key.clone(), value.clone());
            config
        };
        configs = configs
            .iter()
            .flat_map(|config| values.iter().map(move |value| insert(config, value)))
            .collect();
    }
    configs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_expand_and_sets_do_not() {
        let text = "# a comment\n{ prov_name: shm, test_type: [FT_TEST_UNIT FT_TEST_LATENCY,],\n\
                    \"ep_type\": [FI_EP_RDM], constant_caps: [FI_RMA, FI_MSG] mr_mode: [], }\n\
                    {op:FI_SUM}";
        let configs = parse(text).unwrap();
        assert_eq!(configs.len(), 3);
        assert_eq!(configs[0]["test_type"], "FT_TEST_UNIT");
        assert_eq!(configs[1]["test_type"], "FT_TEST_LATENCY");
        assert_eq!(configs[1]["constant_caps"], "FI_RMA|FI_MSG");
        assert_eq!(configs[0]["mr_mode"], "");
        assert_eq!(configs[2]["op"], "FI_SUM");
    }

    #[test]
    fn errors_name_the_invalid_part() {
        for (text, word) in [
            ("", "no configuration"),
            ("{ tset_type: x }", "tset_type"),
            ("{ op: [] }", "empty"),
            ("{ op: [a", "None"),
            ("{ op: {", "{"),
            ("x", "x"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
