//! Parses the values of a configuration into a test case.

use anyhow::{Context as _, bail};
use selvedge::atomic::{Datatype, Family, Op};
use selvedge::info::{EpType, Progress, Threading};
use selvedge::{Caps, MrMode, OpFlags, av, wait};
use selvedge_testkit::atomics::families;

use super::config::Config;
use crate::upstream::data::atomics;

/// A test case.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) provider: Option<String>,
    /// The server's node; it overrides the node of the command line.
    pub(super) node: Option<String>,
    pub(super) service: Option<String>,
    pub(super) test: Test,
    pub(super) class: Class,
    pub(super) function: Function,
    /// The capabilities in addition to those of the class.
    pub(super) caps: Caps,
    pub(super) ep_type: EpType,
    /// Whether completions are reported by queues.
    pub(super) queues: bool,
    /// Whether completions are reported by counters.
    pub(super) counters: bool,
    pub(super) av_type: av::Type,
    pub(super) eq_wait: wait::Object,
    pub(super) cq_wait: wait::Object,
    pub(super) mr_mode: Option<MrMode>,
    pub(super) progress: Progress,
    pub(super) threading: Option<Threading>,
    pub(super) op: Op,
    pub(super) datatype: Datatype,
    /// The flags of the call if its form is [`Form::Message`].
    pub(super) msg_flags: OpFlags,
    pub(super) tx: Direction,
    pub(super) rx: Direction,
    /// Whether the case uses few sizes and iterations.
    pub(super) is_quick: bool,
}

/// How the completions of one direction are reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    pub(super) selective: bool,
    pub(super) op_flags: OpFlags,
}

/// The value of `test_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Unit,
    Latency,
    Bandwidth,
}

/// The value of `test_class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Msg,
    Tagged,
    Rma,
    Atomic,
}

/// The value of `class_function`: a data transfer call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) operation: Operation,
    pub(super) form: Form,
    pub(super) data: bool,
}

/// The operation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Send,
    Write,
    Read,
    Atomic(Family),
}

/// The form of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One buffer.
    Plain,
    /// A vector of buffers (`v`).
    List,
    /// A message structure and flags (`msg`).
    Message,
    /// An injected copy (`inject`).
    Inject,
}

impl Case {
    /// Parses a configuration.
    ///
    /// # Errors
    /// A value is unknown; the error names the key and the value.
    pub(super) fn read(config: &Config) -> anyhow::Result<Self> {
        let reader = Reader(config);
        let completion = reader.word("comp_type", COMPLETIONS)?;
        let class = reader.word("test_class", CLASSES)?;
        Ok(Self {
            provider: config.get("prov_name").cloned(),
            node: config.get("node").cloned(),
            service: config.get("service").cloned(),
            test: reader.word("test_type", TESTS)?,
            class,
            function: reader.function(class)?,
            caps: reader.caps()?,
            ep_type: reader.parse_with("ep_type", EpType::Rdm, |word| Ok(word.parse()?))?,
            queues: completion != "counter",
            counters: completion != "queue",
            av_type: reader.word("av_type", VECTORS)?,
            eq_wait: reader.word("eq_wait_obj", WAITS)?,
            cq_wait: reader.word("cq_wait_obj", WAITS)?,
            mr_mode: config
                .get("mr_mode")
                .map(|_| reader.flags("mr_mode", "FI_MR_", MrMode::from_name))
                .transpose()?,
            progress: reader.parse_with("progress", Progress::Unspec, |word| Ok(word.parse()?))?,
            threading: reader.parse_with("threading", None, |word| Ok(Some(word.parse()?)))?,
            op: reader.parse_with("op", Op::Min, atomics::op)?,
            datatype: reader.parse_with("datatype", Datatype::Int8, atomics::datatype)?,
            msg_flags: reader.flags("msg_flags", "FI_", OpFlags::from_name)?,
            tx: reader.direction("tx_cq_bind_flags", "tx_op_flags")?,
            rx: reader.direction("rx_cq_bind_flags", "rx_op_flags")?,
            is_quick: reader.has("test_flags", "FT_FLAG_QUICKTEST"),
        })
    }

    /// Returns why the case is invalid; `None` for a valid one. In an invalid case, the call
    /// belongs to another class, the operation belongs to another family, or no completion would
    /// report a received message.
    pub(super) fn invalid_reason(&self) -> Option<&'static str> {
        let matches_class = match (self.class, self.function.operation) {
            (Class::Msg | Class::Tagged, Operation::Send)
            | (Class::Rma, Operation::Write | Operation::Read) => true,
            (Class::Atomic, Operation::Atomic(family)) => families(self.op).contains(&family),
            _ => false,
        };
        if !matches_class {
            return Some("the call belongs to another class");
        }
        let is_received = matches!(self.class, Class::Msg | Class::Tagged);
        if is_received && !self.is_reported(self.rx) && !self.counters {
            Some("no completion would report a received message")
        } else {
            None
        }
    }

    /// Whether the queue of a direction has an entry for each successful operation.
    pub(super) fn is_reported(&self, direction: Direction) -> bool {
        let flags = match self.function.form {
            Form::Message => self.msg_flags,
            _ => direction.op_flags,
        };
        (self.queues && !direction.selective) || flags.contains(OpFlags::COMPLETION)
    }

    /// The capabilities for discovery.
    pub(super) fn all_caps(&self) -> Caps {
        self.caps
            | match self.class {
                Class::Msg => Caps::MSG,
                Class::Tagged => Caps::TAGGED,
                Class::Rma => Caps::MSG | Caps::RMA,
                Class::Atomic => Caps::MSG | Caps::ATOMIC,
            }
    }

    /// The name of the case in tables.
    pub(super) fn name(&self) -> String {
        let function = FUNCTIONS.iter().find(|(_, f)| *f == self.function);
        let function = function.map_or("", |(name, _)| name);
        let function = function.trim_start_matches("FT_FUNC_").to_lowercase();
        let prefix = match self.class {
            Class::Tagged => "t",
            _ => "",
        };
        let mut name = format!("{:?} {prefix}{function}", self.test).to_lowercase();
        if self.class == Class::Atomic {
            name += &format!(" {:?} {:?}", self.op, self.datatype);
        }
        name
    }
}

/// Parses the values of a configuration.
struct Reader<'a>(&'a Config);

impl Reader<'_> {
    /// The value of the word that the configuration has for `key`; without the key, the value of
    /// the first of `words`.
    fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> anyhow::Result<T> {
        let Some(text) = self.0.get(key) else {
            return Ok(words[0].1);
        };
        match words.iter().find(|(word, _)| word == text) {
            Some((_, value)) => Ok(*value),
            None => bail!("{key}: unknown value {text:?}"),
        }
    }

    fn parse_with<T>(
        &self,
        key: &str,
        default: T,
        read: impl FnOnce(&str) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let text = self.0.get(key);
        text.map_or(Ok(default), |text| {
            read(text).with_context(|| format!("{key}: {text:?}"))
        })
    }

    fn words(&self, key: &str) -> impl Iterator<Item = &str> {
        let text = self.0.get(key).map_or("", String::as_str);
        text.split('|').filter(|word| !word.is_empty())
    }

    fn has(&self, key: &str, word: &str) -> bool {
        self.words(key).any(|other| other == word)
    }

    fn flags<F: FromIterator<F>>(
        &self,
        key: &str,
        prefix: &str,
        from_name: fn(&str) -> Option<F>,
    ) -> anyhow::Result<F> {
        let flags = self.words(key).map(|word| {
            let name = word.strip_prefix(prefix).unwrap_or(word);
            from_name(name).with_context(|| format!("{key}: unknown value {word:?}"))
        });
        flags.collect()
    }

    fn caps(&self) -> anyhow::Result<Caps> {
        self.flags("constant_caps", "FI_", |name| match name {
            "ATOMICS" => Some(Caps::ATOMIC),
            name => Caps::from_name(name),
        })
    }

    fn direction(&self, bind: &str, op: &str) -> anyhow::Result<Direction> {
        for word in self.words(bind) {
            let valid = ["FI_SELECTIVE_COMPLETION", "FI_TRANSMIT", "FI_RECV"];
            anyhow::ensure!(valid.contains(&word), "{bind}: unknown value {word:?}");
        }
        Ok(Direction {
            selective: self.has(bind, "FI_SELECTIVE_COMPLETION"),
            op_flags: self.flags(op, "FI_", OpFlags::from_name)?,
        })
    }

    /// The call that `class_function` names; without that key, the simplest call of the class.
    fn function(&self, class: Class) -> anyhow::Result<Function> {
        if self.0.contains_key("class_function") {
            return self.word("class_function", FUNCTIONS);
        }
        let name = match class {
            Class::Msg | Class::Tagged => "FT_FUNC_SEND",
            Class::Rma => "FT_FUNC_WRITE",
            Class::Atomic => "FT_FUNC_ATOMIC",
        };
        let found = FUNCTIONS.iter().find(|(word, _)| *word == name);
        found.map(|(_, function)| *function).context(name)
    }
}

const TESTS: &[(&str, Test)] = &[
    ("FT_TEST_UNIT", Test::Unit),
    ("FT_TEST_LATENCY", Test::Latency),
    ("FT_TEST_BANDWIDTH", Test::Bandwidth),
];

const CLASSES: &[(&str, Class)] = &[
    ("FT_CAP_MSG", Class::Msg),
    ("FT_CAP_TAGGED", Class::Tagged),
    ("FT_CAP_RMA", Class::Rma),
    ("FT_CAP_ATOMIC", Class::Atomic),
];

const COMPLETIONS: &[(&str, &str)] = &[
    ("FT_COMP_QUEUE", "queue"),
    ("FT_COMP_CNTR", "counter"),
    ("FT_COMP_ALL", "all"),
];

const VECTORS: &[(&str, av::Type)] = &[
    ("FI_AV_UNSPEC", av::Type::Unspec),
    ("FI_AV_TABLE", av::Type::Table),
    ("FI_AV_MAP", av::Type::Map),
];

const WAITS: &[(&str, wait::Object)] = &[
    ("FI_WAIT_NONE", wait::Object::None),
    ("FI_WAIT_UNSPEC", wait::Object::Unspec),
    ("FI_WAIT_FD", wait::Object::Fd),
    ("FI_WAIT_YIELD", wait::Object::Yield),
    // The program waits only in blocking reads and never uses the mutex of a queue.
    ("FI_WAIT_MUTEX_COND", wait::Object::Unspec),
];

const fn call(operation: Operation, form: Form) -> Function {
    Function {
        operation,
        form,
        data: false,
    }
}

const fn with_data(operation: Operation, form: Form) -> Function {
    Function {
        operation,
        form,
        data: true,
    }
}

const FUNCTIONS: &[(&str, Function)] = &[
    ("FT_FUNC_SEND", call(Operation::Send, Form::Plain)),
    ("FT_FUNC_SENDV", call(Operation::Send, Form::List)),
    ("FT_FUNC_SENDMSG", call(Operation::Send, Form::Message)),
    ("FT_FUNC_INJECT", call(Operation::Send, Form::Inject)),
    (
        "FT_FUNC_INJECTDATA",
        with_data(Operation::Send, Form::Inject),
    ),
    ("FT_FUNC_SENDDATA", with_data(Operation::Send, Form::Plain)),
    ("FT_FUNC_READ", call(Operation::Read, Form::Plain)),
    ("FT_FUNC_READV", call(Operation::Read, Form::List)),
    ("FT_FUNC_READMSG", call(Operation::Read, Form::Message)),
    ("FT_FUNC_WRITE", call(Operation::Write, Form::Plain)),
    ("FT_FUNC_WRITEV", call(Operation::Write, Form::List)),
    ("FT_FUNC_WRITEMSG", call(Operation::Write, Form::Message)),
    (
        "FT_FUNC_WRITEDATA",
        with_data(Operation::Write, Form::Plain),
    ),
    ("FT_FUNC_INJECT_WRITE", call(Operation::Write, Form::Inject)),
    (
        "FT_FUNC_INJECT_WRITEDATA",
        with_data(Operation::Write, Form::Inject),
    ),
    (
        "FT_FUNC_ATOMIC",
        call(Operation::Atomic(Family::Base), Form::Plain),
    ),
    (
        "FT_FUNC_ATOMICV",
        call(Operation::Atomic(Family::Base), Form::List),
    ),
    (
        "FT_FUNC_ATOMICMSG",
        call(Operation::Atomic(Family::Base), Form::Message),
    ),
    (
        "FT_FUNC_INJECT_ATOMIC",
        call(Operation::Atomic(Family::Base), Form::Inject),
    ),
    (
        "FT_FUNC_FETCH_ATOMIC",
        call(Operation::Atomic(Family::Fetch), Form::Plain),
    ),
    (
        "FT_FUNC_FETCH_ATOMICV",
        call(Operation::Atomic(Family::Fetch), Form::List),
    ),
    (
        "FT_FUNC_FETCH_ATOMICMSG",
        call(Operation::Atomic(Family::Fetch), Form::Message),
    ),
    (
        "FT_FUNC_COMPARE_ATOMIC",
        call(Operation::Atomic(Family::Compare), Form::Plain),
    ),
    (
        "FT_FUNC_COMPARE_ATOMICV",
        call(Operation::Atomic(Family::Compare), Form::List),
    ),
    (
        "FT_FUNC_COMPARE_ATOMICMSG",
        call(Operation::Atomic(Family::Compare), Form::Message),
    ),
];

#[cfg(test)]
mod tests {
    use super::super::config;
    use super::*;

    fn read(text: &str) -> anyhow::Result<Case> {
        let configs = config::parse(text)?;
        Case::read(&configs[0])
    }

    #[test]
    fn configurations_parse_into_cases() {
        let case = read(
            "{ prov_name: shm test_type: FT_TEST_BANDWIDTH test_class: FT_CAP_TAGGED \
             class_function: FT_FUNC_SENDMSG ep_type: FI_EP_RDM comp_type: FT_COMP_QUEUE \
             tx_cq_bind_flags: [FI_SELECTIVE_COMPLETION] msg_flags: [FI_COMPLETION] \
             constant_caps: [FI_ATOMICS, FI_SOURCE] mr_mode: [FI_MR_VIRT_ADDR] \
             progress: FI_PROGRESS_AUTO cq_wait_obj: FI_WAIT_FD test_flags: FT_FLAG_QUICKTEST }",
        )
        .unwrap();
        assert_eq!((case.test, case.class), (Test::Bandwidth, Class::Tagged));
        assert!(case.is_quick && case.tx.selective && case.is_reported(case.tx));
        assert_eq!(case.caps, Caps::ATOMIC | Caps::SOURCE);
        assert_eq!(case.mr_mode, Some(MrMode::VIRT_ADDR));
        assert_eq!(case.progress, Progress::Auto);
        assert_eq!(case.invalid_reason(), None);
        assert_eq!(case.name(), "bandwidth tsendmsg");
    }

    #[test]
    fn errors_name_the_unknown_value() {
        for (text, word) in [
            ("test_type: FT_TEST_SPEED", "FT_TEST_SPEED"),
            ("mr_mode: [FI_MR_NICE]", "FI_MR_NICE"),
            ("op: FI_GUESS", "FI_GUESS"),
            ("ep_type: FI_EP_STREAM", "FI_EP_STREAM"),
            ("rx_cq_bind_flags: [FI_MOSTLY]", "FI_MOSTLY"),
        ] {
            let error = format!("{:#}", read(&format!("{{ {text} }}")).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn invalid_combinations_have_a_reason() {
        let invalid_reason = |text: &str| read(&format!("{{ {text} }}")).unwrap().invalid_reason();
        assert!(invalid_reason("test_class: FT_CAP_RMA class_function: FT_FUNC_SEND").is_some());
        assert!(
            invalid_reason("test_class: FT_CAP_ATOMIC class_function: FT_FUNC_ATOMIC op: FI_CSWAP")
                .is_some()
        );
        assert!(invalid_reason("rx_cq_bind_flags: [FI_SELECTIVE_COMPLETION]").is_some());
        assert!(invalid_reason("test_class: FT_CAP_RMA").is_none());
    }
}
