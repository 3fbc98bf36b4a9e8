//! Files of configurations: relaxed JSON, whose lists are multiplied out.
//!
//! Words need no quotes, commas may be missing or too many, and a line that begins with `#` is a
//! comment. Each object stands for all combinations of its values, but for the keys whose lists are
//! sets of flags.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};

/// One configuration: a value for each key.
pub(super) type Config = BTreeMap<String, String>;

/// Keys whose lists are sets.
const SETS: [&str; 9] = [
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
/// Keys whose values are tried in turn.
const CHOICES: [&str; 17] = [
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

/// Reads a file: all configurations, in the order of the objects.
///
/// # Errors
/// What of it is no configuration.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<Config>> {
    let mut tokens = tokens(text).into_iter().peekable();
    let mut configs = Vec::new();
    while let Some(token) = tokens.next() {
        match token.as_str() {
            "{" => {
                let mut lists = Vec::new();
                loop {
                    match tokens.next().as_deref() {
                        Some("}") => break,
                        Some(key) if !is_mark(key) => {
                            check_key(key)?;
                            lists.push((key.to_owned(), values(key, &mut tokens)?));
                        }
                        other => bail!("{other:?} where a key or }} should be"),
                    }
                }
                configs.extend(multiply(&lists));
            }
            "[" | "]" => {}
            other => bail!("{other:?} outside of an object"),
        }
    }
    ensure!(!configs.is_empty(), "there is no configuration");
    Ok(configs)
}

fn check_key(key: &str) -> anyhow::Result<()> {
    let is_known = SETS.contains(&key) || CHOICES.contains(&key);
    ensure!(is_known, "{key:?} is no key of a configuration");
    Ok(())
}

fn values(key: &str, tokens: &mut impl Iterator<Item = String>) -> anyhow::Result<Vec<String>> {
    match tokens.next().as_deref() {
        Some("[") => {}
        Some(word) if !is_mark(word) => return Ok(vec![word.to_owned()]),
        other => bail!("{key}: {other:?} where a value should be"),
    }
    let mut values = Vec::new();
    loop {
        match tokens.next().as_deref() {
            Some("]") => break,
            Some(word) if !is_mark(word) => values.push(word.to_owned()),
            other => bail!("{key}: {other:?} in a list"),
        }
    }
    // Of flags there may be none.
    ensure!(
        !values.is_empty() || SETS.contains(&key),
        "{key}: an empty list"
    );
    Ok(values)
}

fn is_mark(token: &str) -> bool {
    matches!(token, "{" | "}" | "[" | "]")
}

/// Words and brackets; colons and commas only part them.
fn tokens(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let mut tokens = Vec::new();
    for line in lines {
        let mut word = String::new();
        for letter in line.chars().chain([' ']) {
            let parts = matches!(letter, '{' | '}' | '[' | ']' | ':' | ',' | '"' | '\'');
            if !parts && !letter.is_whitespace() {
                word.push(letter);
                continue;
            }
            if !word.is_empty() {
                tokens.push(std::mem::take(&mut word));
            }
            if is_mark(letter.encode_utf8(&mut [0; 4])) {
                tokens.push(letter.to_string());
            }
        }
    }
    tokens
}

fn multiply(lists: &[(String, Vec<String>)]) -> Vec<Config> {
    let mut configs = vec![Config::new()];
    for (key, values) in lists {
        let values = match SETS.contains(&key.as_str()) {
            true => vec![values.join("|")],
            false => values.clone(),
        };
        let with = |config: &Config, value: &String| {
            let mut config = config.clone();
            config.insert(key.clone(), value.clone());
            config
        };
        configs = configs
            .iter()
            .flat_map(|config| values.iter().map(move |value| with(config, value)))
            .collect();
    }
    configs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_multiplied_and_sets_are_not() {
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
    fn what_is_no_configuration_is_named() {
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
