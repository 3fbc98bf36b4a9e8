//! The live view: all endpoints, and details of the selected one.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use ratatui::{DefaultTerminal, Frame};
use selvedge_kit::telemetry::{Gauge, Stats};

use crate::options::Options;
use crate::processes;
use crate::rates::{self, Measured, is_same};
use crate::table::{self, cut, tail};
use crate::times;
use crate::units::{bytes, count};

/// Number of samples kept for a sparkline.
const HISTORY: usize = 240;

/// Shows the view until the user ends it.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut view = View {
        rows: rates::snapshot(options)?
            .into_iter()
            .map(|stats| Tracked::new(Measured::new(None, stats, 1.0)))
            .collect(),
        total: VecDeque::new(),
        selected: TableState::default().with_selected(0),
        is_paused: false,
        shows_latencies: false,
    };
    let mut terminal = ratatui::try_init()?;
    let shown = view.show(&mut terminal, options);
    ratatui::try_restore()?;
    shown
}

struct View {
    rows: Vec<Tracked>,
    /// Messages per second of all endpoints, out and in.
    total: VecDeque<u64>,
    selected: TableState,
    is_paused: bool,
    /// Whether the details show latencies.
    shows_latencies: bool,
}

/// An endpoint, and its operations per second in the past.
struct Tracked {
    measured: Measured,
    history: VecDeque<u64>,
}

impl Tracked {
    fn new(measured: Measured) -> Self {
        Self {
            measured,
            history: VecDeque::new(),
        }
    }
}

impl View {
    fn show(&mut self, terminal: &mut DefaultTerminal, options: &Options) -> anyhow::Result<()> {
        let mut last = Instant::now();
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            let left = options.interval.saturating_sub(last.elapsed());
            if event::poll(left.max(Duration::from_millis(10)))? {
                if let Event::Key(key) = event::read()?
                    && key.kind == KeyEventKind::Press
                    && self.handle_key(key.code, key.modifiers)
                {
                    return Ok(());
                }
                continue;
            }
            if !self.is_paused {
                self.update(options, last.elapsed().as_secs_f64())?;
            }
            last = Instant::now();
        }
    }

    /// Handles a key. Returns whether it ends the view.
    fn handle_key(&mut self, key: KeyCode, with: KeyModifiers) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if with.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('l') => self.shows_latencies = !self.shows_latencies,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Up | KeyCode::Char('k') => self.selected.select_previous(),
            KeyCode::Down | KeyCode::Char('j') => self.selected.select_next(),
            _ => {}
        }
        false
    }

    fn update(&mut self, options: &Options, seconds: f64) -> anyhow::Result<()> {
        let before: Vec<Stats> = self
            .rows
            .iter()
            .map(|row| row.measured.stats.clone())
            .collect();
        let measured = rates::compare(&before, rates::snapshot(options)?, seconds);
        let mut old = std::mem::take(&mut self.rows);
        let mut total = 0;
        for measured in measured {
            let is_it = |row: &Tracked| is_same(&row.measured.stats, &measured.stats);
            let history = match old.iter().position(is_it) {
                Some(index) => old.swap_remove(index).history,
                None => VecDeque::new(),
            };
            let mut row = Tracked { measured, history };
            let rate = &row.measured;
            let all = rate.sent.operations + rate.received.operations + rate.one_sided.operations;
            push_history(&mut row.history, all as u64);
            total += all as u64;
            self.rows.push(row);
        }
        push_history(&mut self.total, total);
        Ok(())
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let rows = (self.rows.len() as u16 + 1).max(2);
        let least = frame.area().height / 3;
        let [header, list, detail, foot] = Layout::vertical([
            Constraint::Length(3),
            Constraint::Max(rows.max(least.min(rows))),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.draw_head(frame, header);
        self.draw_list(frame, list);
        self.draw_detail(frame, detail);
        let stopped = if self.is_paused { "  STOPPED" } else { "" };
        let keys = format!("q quit  up/down choose  l latency  p stop{stopped}");
        frame.render_widget(Line::from(keys).dim(), foot);
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let sum = |part: fn(&Measured) -> f64| -> f64 {
            // An empty sum of floats is -0.
            0.0 + self.rows.iter().map(|row| part(&row.measured)).sum::<f64>()
        };
        let pids: std::collections::BTreeSet<u32> =
            self.rows.iter().map(|row| row.measured.stats.pid).collect();
        let text = format!(
            "fi_top  {} in {}  out {}/s {}/s  in {}/s {}/s",
            counted(self.rows.len(), "endpoint", "endpoints"),
            counted(pids.len(), "process", "processes"),
            count(sum(|it| it.sent.operations + it.one_sided.operations)),
            bytes(sum(|it| it.sent.bytes + it.one_sided.bytes)),
            count(sum(|it| it.received.operations)),
            bytes(sum(|it| it.received.bytes)),
        );
        let [line, spark] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        frame.render_widget(Line::from(text).bold(), line);
        sparkline(frame, spark, &self.total);
    }

    fn draw_list(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let has_space = area.width >= 100;
        let mut widths = vec![7, 9, 4, 13, 7, 7, 7, 7, 5, 5];
        let mut header = vec![
            "    PID", "COMMAND", "PROV", "ENDPOINT", "  OUT/s", " OUTB/s", "   IN/s", "  INB/s",
            "POSTD", "UNEXP",
        ];
        if has_space {
            widths.push(area.width - 81);
            header.push("MESSAGES/s");
        }
        let spark = usize::from(area.width.saturating_sub(81));
        let rows = self.rows.iter().map(|row| {
            let mut cells = cells(&row.measured);
            if has_space {
                cells.push(text_spark(&row.history, spark));
            }
            Row::new(cells)
        });
        let widths = widths.into_iter().map(Constraint::Length);
        let selected = Style::new().add_modifier(Modifier::REVERSED);
        let table = Table::new(rows, widths)
            .header(Row::new(header).bold().underlined())
            .column_spacing(1)
            .row_highlight_style(selected);
        frame.render_stateful_widget(table, area, &mut self.selected);
    }

    fn draw_detail(&self, frame: &mut Frame<'_>, area: Rect) {
        let at = self
            .selected
            .selected()
            .unwrap_or(0)
            .min(self.rows.len().saturating_sub(1));
        let Some(row) = self.rows.get(at) else {
            let block = Block::bordered().title(" no endpoints ");
            let text = Paragraph::new("No process of this user has an endpoint open. Endpoints appear when they are opened.")
                .wrap(Wrap { trim: true });
            return frame.render_widget(text.block(block), area);
        };
        let stats = &row.measured.stats;
        let title = format!(
            " {} {} of {}, operations up to {}/s ",
            stats.provider,
            tail(&stats.name, 30),
            stats.pid,
            count(row.history.iter().copied().max().unwrap_or(0) as f64)
        );
        if self.shows_latencies {
            let head = std::iter::once(Line::from(title).bold());
            let lines = head.chain(times(stats).into_iter().map(Line::from));
            let text = Paragraph::new(lines.collect::<Vec<_>>());
            return frame.render_widget(text, area);
        }
        let block = Block::bordered().title(title);
        let inside = block.inner(area);
        frame.render_widget(block, area);
        let [spark, text] =
            Layout::vertical([Constraint::Length(2), Constraint::Fill(1)]).areas(inside);
        sparkline(frame, spark, &row.history);
        let broken = |line: String| table::wrapped(&line, text.width.into());
        let mut lines: Vec<_> = table::details(stats).into_iter().flat_map(broken).collect();
        let events = stats
            .events
            .iter()
            .map(selvedge_kit::telemetry::Event::sentence)
            .flat_map(broken);
        let events: Vec<_> = events.collect();
        let height = usize::from(text.height).saturating_sub(lines.len() + 1);
        let first = events.len().saturating_sub(height);
        lines.extend_from_slice(&events[first..]);
        let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines), text);
    }
}

/// The latencies of an endpoint.
fn times(stats: &Stats) -> Vec<String> {
    let all = processes::latencies(stats.pid);
    let own = all.iter().find(|it| processes::is_of(&it.header, stats));
    own.map_or_else(
        || vec![times::NONE.to_owned()],
        |own| times::lines(&own.histograms),
    )
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn push_history(history: &mut VecDeque<u64>, value: u64) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}

/// The newest value is at the right.
fn sparkline(frame: &mut Frame<'_>, area: Rect, history: &VecDeque<u64>) {
    let first = history.len().saturating_sub(usize::from(area.width));
    let data: Vec<u64> = history.iter().skip(first).copied().collect();
    frame.render_widget(Sparkline::default().data(data), area);
}

/// As [`sparkline`], as text for a table cell.
fn text_spark(history: &VecDeque<u64>, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let first = history.len().saturating_sub(width);
    let max = history
        .iter()
        .skip(first)
        .max()
        .copied()
        .unwrap_or(0)
        .max(1);
    let bar = |value: &u64| BARS[(value * 7 / max) as usize];
    history.iter().skip(first).map(bar).collect()
}

fn cells(row: &Measured) -> Vec<String> {
    let stats = &row.stats;
    let right = |text: String, width: usize| format!("{text:>width$}");
    vec![
        right(stats.pid.to_string(), 7),
        cut(&processes::command(stats.pid).unwrap_or_default(), 9),
        cut(&stats.provider, 4),
        tail(&stats.name, 13),
        right(count(row.sent.operations + row.one_sided.operations), 7),
        right(bytes(row.sent.bytes + row.one_sided.bytes), 7),
        right(count(row.received.operations), 7),
        right(bytes(row.received.bytes), 7),
        right(count(stats.gauge(Gauge::Posted) as f64), 5),
        right(count(stats.gauge(Gauge::Unexpected) as f64), 5),
    ]
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use selvedge_kit::telemetry::{EventKind, OpCounter, ProtocolCounter, StatsPage};

    use super::*;

    /// The view of this process, whose pages are real.
    fn screen(width: u16, pages: &[StatsPage]) -> String {
        let rows = processes::of(std::process::id()).into_iter().map(|stats| {
            let mut row = Tracked::new(Measured::new(None, stats, 1.0));
            row.history.extend(0..200);
            row
        });
        let mut view = View {
            rows: rows.collect(),
            total: (0..200).collect(),
            selected: TableState::default().with_selected(0),
            is_paused: false,
            shows_latencies: false,
        };
        assert_eq!(view.rows.len(), pages.len());
        let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_view_is_readable_at_80_columns_and_draws_at_fewer() {
        let empty = screen(80, &[]);
        assert!(
            empty.contains("0 endpoints in 0 processes  out 0/s 0B/s  in 0/s 0B/s"),
            "{empty}"
        );
        let page = StatsPage::open("shm").unwrap();
        page.set_name("1234:0:0");
        for _ in 0..100 {
            page.count(OpCounter::Sent, 8);
        }
        page.count(OpCounter::Received, 1000);
        page.count_protocol(ProtocolCounter::ReceivedInject, 1000);
        page.record_event(EventKind::Connected, "1235:0:0", 0);
        let reason = "nobody has the name fi_shm://some-server";
        page.record_event(EventKind::SendFailed, reason, 111);
        let pages = [page];
        let text = screen(80, &pages);
        for wanted in [
            "1 endpoint in 1 process ",
            " shm 1234:0:0 of ",
            "operations up to 199/s",
            "PID COMMAND   PROV ENDPOINT        OUT/s  OUTB/s    IN/s   INB/s POSTD UNEXP",
            "shm  1234:0:0",
            "sent inline 100 (800B)",
            "received inject 1 (0.98K)",
            "connected to 1235:0:0",
            "an operation failed (Connection refused, error 111): nobody has the name",
            "  fi_shm://some-server",
            "q quit",
        ] {
            assert!(text.contains(wanted), "{text}\nlacks {wanted}");
        }
        // Narrow terminals are less readable, but do not fail.
        for width in [120, 60, 20, 3] {
            screen(width, &pages);
        }
    }
}
