//! `Help`: the help text of a tool, read into its parts. Man pages and completions are made of it,
//! so that a tool describes its options once.
//!
//! Reads the layout of `clap`'s help, which the tools without `clap` follow as well.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, Command, ValueHint};

/// The parts of a help text.
#[derive(Debug, Default)]
pub(super) struct Help {
    /// The first paragraph.
    about: String,
    /// The forms of the command line, one in each line.
    usage: String,
    /// The other paragraphs.
    paragraphs: Vec<String>,
    entries: Vec<Entry>,
}

/// The kind of an entry in a list of a help text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Option,
    Argument,
    Command,
}

impl Kind {
    /// The kind of the entries of a list with this title.
    fn of_list(title: &str) -> Self {
        match title {
            "Arguments:" => Self::Argument,
            "Commands:" => Self::Command,
            _ => Self::Option,
        }
    }
}

/// The part of the text to which the last line belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Nothing,
    Usage,
    Entry,
    Text,
}

impl Last {
    /// A blank line ends every part but an entry, which may have several paragraphs.
    fn after_blank_line(self) -> Self {
        match self {
            Self::Entry => Self::Entry,
            _ => Self::Nothing,
        }
    }

    /// The part to which a line with this indentation belongs.
    fn before(self, indent: usize) -> Self {
        match self {
            Self::Usage | Self::Entry if indent == 0 => Self::Nothing,
            part => part,
        }
    }
}

/// An option, argument or command, with its explanation.
#[derive(Debug, Default)]
struct Entry {
    kind: Kind,
    name: String,
    text: String,
    /// The possible values, with their explanations.
    values: Vec<(String, String)>,
}

/// Options begin in one of these columns, texts in later ones.
const LAST_OPTION_COLUMN: usize = 6;

impl Help {
    /// Reads a help text.
    pub(super) fn parse(text: &str) -> Self {
        let mut help = Self::default();
        let (mut list, mut last) = (Kind::Option, Last::Nothing);
        for line in text.lines() {
            let words = line.trim();
            let indent = line.len() - line.trim_start().len();
            let is_entry = match list {
                _ if indent == 0 => false,
                _ if words.starts_with('-') => indent <= LAST_OPTION_COLUMN,
                Kind::Option => false,
                Kind::Argument | Kind::Command => indent == 2,
            };
            last = if words.is_empty() {
                last.after_blank_line()
            } else if is_entry {
                help.entries.push(Entry::parse(list, words));
                Last::Entry
            } else if let Some(form) = words.strip_prefix("Usage: ") {
                form.clone_into(&mut help.usage);
                Last::Usage
            } else if indent == 0 && words.ends_with(':') {
                list = Kind::of_list(words);
                Last::Nothing
            } else {
                help.add(words, last.before(indent))
            };
        }
        if !help.paragraphs.is_empty() {
            help.about = help.paragraphs.remove(0);
        }
        help
    }

    /// Adds a line without a mark of its own to what stands before it.
    fn add(&mut self, words: &str, last: Last) -> Last {
        let text = match last {
            Last::Usage => &mut self.usage,
            Last::Entry => match self.entries.last_mut() {
                Some(entry) => {
                    entry.add(words);
                    return last;
                }
                None => return last,
            },
            Last::Text => match self.paragraphs.last_mut() {
                Some(paragraph) => paragraph,
                None => return last,
            },
            Last::Nothing => {
                self.paragraphs.push(words.to_owned());
                return Last::Text;
            }
        };
        text.push(if last == Last::Usage { '\n' } else { ' ' });
        *text += words;
        last
    }

    /// The names of the commands in the help text.
    pub(super) fn commands(&self) -> impl Iterator<Item = &str> {
        let commands = self.entries.iter();
        let commands = commands.filter(|entry| entry.kind == Kind::Command && entry.name != "help");
        commands.map(|entry| &*entry.name)
    }

    /// The description of the tool, without its commands.
    ///
    /// # Errors
    /// An option or the text has a form that this module does not know.
    pub(super) fn describe(&self, name: &str) -> anyhow::Result<Command> {
        ensure!(
            !self.usage.is_empty(),
            "the help text has no line \"Usage: ..\""
        );
        ensure!(
            !self.about.is_empty(),
            "the help text does not say what the tool does"
        );
        let mut command = Command::new(name.to_owned())
            .about(self.about.trim_end_matches('.').to_owned())
            .override_usage(self.usage.clone())
            .disable_help_flag(true)
            .disable_version_flag(true)
            .disable_help_subcommand(true);
        if !self.paragraphs.is_empty() {
            command = command.after_help(self.paragraphs.join("\n"));
        }
        let mut names = BTreeSet::new();
        for entry in self.entries.iter().chain(&self.arguments_of_usage()) {
            let argument = match entry.kind {
                Kind::Option => entry.option(),
                Kind::Argument => Ok(entry.argument()),
                Kind::Command => continue,
            };
            let argument = argument.with_context(|| format!("{:?}", entry.name))?;
            ensure!(
                names.insert(argument.get_id().clone()),
                "the help text has {:?} twice",
                entry.name
            );
            command = command.arg(argument);
        }
        Ok(command)
    }

    /// The arguments in the command line's form, if the help text has no list of them.
    fn arguments_of_usage(&self) -> Vec<Entry> {
        if self.entries.iter().any(|entry| entry.kind != Kind::Option) {
            return Vec::new();
        }
        let mut words = self.usage.split_whitespace().skip(1);
        let mut arguments = Vec::new();
        while let Some(word) = words.next() {
            let name = word.trim_matches(|character| "<>[].".contains(character));
            if word.starts_with('-') {
                // The value of the option.
                words.next();
            } else if name != "OPTIONS" && !name.contains(char::is_lowercase) {
                arguments.push(Entry {
                    kind: Kind::Argument,
                    name: word.trim_end_matches('.').to_owned(),
                    ..Entry::default()
                });
            }
        }
        arguments
    }
}

impl Entry {
    fn parse(list: Kind, words: &str) -> Self {
        let (name, text) = words.split_once("  ").unwrap_or((words, ""));
        let kind = if name.starts_with('-') {
            Kind::Option
        } else {
            list
        };
        let mut entry = Self {
            kind,
            name: name.trim_end_matches("...").to_owned(),
            ..Self::default()
        };
        entry.add(text.trim());
        entry
    }

    /// Adds a line of the explanation.
    fn add(&mut self, words: &str) {
        const VALUES: &str = "[possible values: ";
        let value = words
            .strip_prefix("- ")
            .and_then(|words| words.split_once(": "));
        if let Some((value, text)) = value {
            self.values.push((value.to_owned(), text.trim().to_owned()));
        } else if let Some((before, after)) = words.split_once(VALUES)
            && let Some((values, after)) = after.split_once(']')
        {
            let values = values
                .split(", ")
                .map(|value| (value.to_owned(), String::new()));
            self.values.extend(values);
            self.add(before.trim());
            self.add(after.trim());
        } else if words != "Possible values:" && !words.is_empty() {
            if !self.text.is_empty() {
                self.text.push(' ');
            }
            self.text += words;
        }
    }

    /// The option: `-s, --long VALUE`, `--long <VALUE>`, `--long[=<VALUE>]`.
    fn option(&self) -> anyhow::Result<Arg> {
        let end = self.name.find(['<', '[', '=']).unwrap_or(self.name.len());
        let (names, value) = self.name.split_at(end);
        let mut words: Vec<_> = names
            .split([',', ' '])
            .filter(|word| !word.is_empty())
            .collect();
        let mut value = Some(value).filter(|value| !value.is_empty());
        if value.is_none() && words.last().is_some_and(|word| !word.starts_with('-')) {
            value = words.pop();
        }
        let (mut short, mut long) = (None, None);
        for word in words {
            let mut characters = word.trim_start_matches('-').chars();
            match (
                word.strip_prefix("--"),
                characters.next(),
                characters.next(),
            ) {
                (Some(name), Some(_), _) => long = Some(name.to_owned()),
                (None, Some(character), None) => short = Some(character),
                _ => bail!("{word} is neither -x nor --name"),
            }
        }
        let id = long.clone().or_else(|| short.map(String::from));
        let mut option = Arg::new(id.context("no name")?).action(ArgAction::SetTrue);
        if let Some(short) = short {
            option = option.short(short);
        }
        if let Some(long) = long {
            option = option.long(long);
        }
        let Some(value) = value else {
            return Ok(option.help(self.text.clone()));
        };
        option = if value.starts_with('[') {
            option.num_args(0..=1).require_equals(true)
        } else {
            option.num_args(1)
        };
        Ok(self.with_value(option.action(ArgAction::Append), value))
    }

    /// The argument: `<NAME>`, `[NAME]`, with dots if there may be several.
    fn argument(&self) -> Arg {
        let argument = Arg::new(self.name.clone()).required(self.name.starts_with('<'));
        self.with_value(argument, &self.name)
    }

    fn with_value(&self, argument: Arg, value: &str) -> Arg {
        let name = value
            .trim_matches(|character| "<>[]=.".contains(character))
            .to_owned();
        let hint = match &*name {
            "FILE" | "PATH" | "PROGRAM" => ValueHint::AnyPath,
            "DIR" => ValueHint::DirPath,
            _ => ValueHint::Other,
        };
        let argument = argument
            .value_name(name)
            .value_hint(hint)
            .help(self.text.clone());
        if self.values.is_empty() {
            return argument;
        }
        let values = self.values.iter().map(|(name, text)| {
            let value = PossibleValue::new(name.clone());
            if text.is_empty() {
                value
            } else {
                value.help(text.clone())
            }
        });
        argument.value_parser(PossibleValuesParser::new(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Does something.

Usage: tool [OPTIONS] <FILE>

Arguments:
  <FILE>  The file

Options:
  -s, --size <N>      The size, of
                      all [default: 7]
      --mode <MODE>   The mode [possible values: fast, slow]
      --every[=<N>]   Each time
      --wait <WAIT>
          How to wait

          Possible values:
          - spin: Reads
          - park: Parks

          [default: spin]
  -i, --interval S    seconds
  -q                  quiet
  -h, --help          help

Keys: q ends,
u goes up.

Another paragraph.
";

    #[test]
    fn options_arguments_and_paragraphs_are_read() {
        let command = Help::parse(TEXT).describe("tool").unwrap();
        let names: Vec<_> = command
            .get_arguments()
            .map(|arg| arg.get_id().as_str())
            .collect();
        assert_eq!(
            names,
            [
                "<FILE>", "size", "mode", "every", "wait", "interval", "q", "help"
            ]
        );
        let find = |id: &str| {
            let mut arguments = command.get_arguments();
            arguments.find(|arg| arg.get_id() == id).unwrap()
        };
        let help = find("size").get_help().unwrap().to_string();
        assert_eq!(help, "The size, of all [default: 7]");
        assert_eq!(find("mode").get_help().unwrap().to_string(), "The mode");
        let modes = find("mode").get_possible_values();
        assert_eq!(
            modes.iter().map(|mode| mode.get_name()).collect::<Vec<_>>(),
            ["fast", "slow"]
        );
        let text = find("wait").get_help().unwrap().to_string();
        assert_eq!(text, "How to wait [default: spin]");
        let park = find("wait").get_possible_values().remove(1);
        assert_eq!(park.get_help().unwrap().to_string(), "Parks");
        assert_eq!(find("interval").get_short(), Some('i'));
        assert_eq!(find("interval").get_value_names().unwrap()[0].as_str(), "S");
        assert!(!find("q").get_action().takes_values());
        let notes = command.get_after_help().unwrap().to_string();
        assert_eq!(notes, "Keys: q ends, u goes up.\nAnother paragraph.");
        assert_eq!(command.get_about().unwrap().to_string(), "Does something");
    }

    #[test]
    fn commands_are_read_and_help_is_none_of_them() {
        let text =
            "Usage: tool <COMMAND>\n\nCommands:\n  run   Runs\n  help  Helps\n\nOptions:\n  -h\n";
        let help = Help::parse(text);
        assert_eq!(help.commands().collect::<Vec<_>>(), ["run"]);
    }

    #[test]
    fn a_name_of_another_form_is_an_error() {
        let text = "Does.\n\nUsage: tool\n\n  -np N   contexts\n";
        let error = Help::parse(text).describe("tool").unwrap_err();
        assert!(format!("{error:#}").contains("-np is neither"), "{error:#}");
    }

    #[test]
    fn arguments_without_a_list_are_read_from_the_usage() {
        let text =
            "Does.\n\nUsage: tool run -n N [OPTIONS] PROGRAM [ARGUMENTS]\n\n  -n N  contexts\n";
        let command = Help::parse(text).describe("tool").unwrap();
        let positionals: Vec<_> = command
            .get_positionals()
            .map(|it| it.get_id().as_str())
            .collect();
        assert_eq!(positionals, ["PROGRAM", "[ARGUMENTS]"]);
    }
}
