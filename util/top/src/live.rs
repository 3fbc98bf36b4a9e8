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

/// Shows the view until the user quits.
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
    let result = view.show(&mut terminal, options);
    ratatui::try_restore()?;
    result
}

struct View {
    rows: Vec<Tracked>,
    /// Samples of the operations per second of all endpoints, in both directions.
    total: VecDeque<u64>,
    selected: TableState,
    is_paused: bool,
    /// Whether the details show latencies.
    shows_latencies: bool,
}

/// An endpoint with the history of its rate.
struct Tracked {
    measured: Measured,
    /// Samples of the operations per second; the newest is the last.
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
        let mut last_update = Instant::now();
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            let remaining = options.interval.saturating_sub(last_update.elapsed());
            if event::poll(remaining.max(Duration::from_millis(10)))? {
                if let Event::Key(key) = event::read()?
                    && key.kind == KeyEventKind::Press
                    && self.handle_key(key.code, key.modifiers)
                {
                    return Ok(());
                }
                continue;
            }
            if !self.is_paused {
                self.update(options, last_update.elapsed().as_secs_f64())?;
            }
            last_update = Instant::now();
        }
    }

    /// Handles a key. Returns whether it ends the view.
    fn handle_key(&mut self, key: KeyCode, modifiers: KeyModifiers) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('l') => self.shows_latencies = !self.shows_latencies,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Up | KeyCode::Char('k') => self.selected.select_previous(),
            KeyCode::Down | KeyCode::Char('j') => self.selected.select_next(),
            _ => {}
        }
        false
    }

    fn update(&mut self, options: &Options, seconds: f64) -> anyhow::Result<()> {
        let previous: Vec<Stats> = self
            .rows
            .iter()
            .map(|row| row.measured.stats.clone())
            .collect();
        let measured = rates::compare(&previous, rates::snapshot(options)?, seconds);
        let mut old = std::mem::take(&mut self.rows);
        let mut total = 0;
        for measured in measured {
            let is_endpoint = |row: &Tracked| is_same(&row.measured.stats, &measured.stats);
            let history = match old.iter().position(is_endpoint) {
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
        let third = frame.area().height / 3;
        let [header, list, details, footer] = Layout::vertical([
            Constraint::Length(3),
            Constraint::Max(rows.max(third.min(rows))),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.draw_header(frame, header);
        self.draw_list(frame, list);
        self.draw_details(frame, details);
        let stopped = if self.is_paused { "  STOPPED" } else { "" };
        let keys = format!("q quit  up/down choose  l latency  p stop{stopped}");
        frame.render_widget(Line::from(keys).dim(), footer);
    }

    fn draw_header(&self, frame: &mut Frame<'_>, area: Rect) {
        let sum = |rate: fn(&Measured) -> f64| -> f64 {
            // An empty sum of floats is -0.
            0.0 + self.rows.iter().map(|row| rate(&row.measured)).sum::<f64>()
        };
        let pids: std::collections::BTreeSet<u32> =
            self.rows.iter().map(|row| row.measured.stats.pid).collect();
        let text = format!(
            "fi_top  {} in {}  out {}/s {}/s  in {}/s {}/s",
            format_count(self.rows.len(), "endpoint", "endpoints"),
            format_count(pids.len(), "process", "processes"),
            count(sum(
                |rates| rates.sent.operations + rates.one_sided.operations
            )),
            bytes(sum(|rates| rates.sent.bytes + rates.one_sided.bytes)),
            count(sum(|rates| rates.received.operations)),
            bytes(sum(|rates| rates.received.bytes)),
        );
        let [line_area, spark_area] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        frame.render_widget(Line::from(text).bold(), line_area);
        draw_sparkline(frame, spark_area, &self.total);
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
        let spark_width = usize::from(area.width.saturating_sub(81));
        let rows = self.rows.iter().map(|row| {
            let mut cells = cells(&row.measured);
            if has_space {
                cells.push(format_sparkline(&row.history, spark_width));
            }
            Row::new(cells)
        });
        let widths = widths.into_iter().map(Constraint::Length);
        let highlight = Style::new().add_modifier(Modifier::REVERSED);
        let table = Table::new(rows, widths)
            .header(Row::new(header).bold().underlined())
            .column_spacing(1)
            .row_highlight_style(highlight);
        frame.render_stateful_widget(table, area, &mut self.selected);
    }

    fn draw_details(&self, frame: &mut Frame<'_>, area: Rect) {
        let index = self
            .selected
            .selected()
            .unwrap_or(0)
            .min(self.rows.len().saturating_sub(1));
        let Some(row) = self.rows.get(index) else {
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
            let header = std::iter::once(Line::from(title).bold());
            let lines = header.chain(latency_lines(stats).into_iter().map(Line::from));
            let text = Paragraph::new(lines.collect::<Vec<_>>());
            return frame.render_widget(text, area);
        }
        let block = Block::bordered().title(title);
        let inside = block.inner(area);
        frame.render_widget(block, area);
        let [spark_area, text_area] =
            Layout::vertical([Constraint::Length(2), Constraint::Fill(1)]).areas(inside);
        draw_sparkline(frame, spark_area, &row.history);
        let wrap = |line: String| table::wrap(&line, text_area.width.into());
        let details = table::details(stats).into_iter();
        let mut lines: Vec<_> = details.flat_map(wrap).collect();
        let events = stats
            .events
            .iter()
            .map(selvedge_kit::telemetry::Event::sentence)
            .flat_map(wrap);
        let events: Vec<_> = events.collect();
        let height = usize::from(text_area.height).saturating_sub(lines.len() + 1);
        let first = events.len().saturating_sub(height);
        lines.extend_from_slice(&events[first..]);
        let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines), text_area);
    }
}

/// Returns the latencies of an endpoint as lines of a table.
fn latency_lines(stats: &Stats) -> Vec<String> {
    let all = processes::latencies(stats.pid);
    let latencies = all
        .iter()
        .find(|latencies| processes::is_of(&latencies.header, stats));
    latencies.map_or_else(
        || vec![times::NONE.to_owned()],
        |latencies| times::lines(&latencies.histograms),
    )
}

fn format_count(number: usize, singular: &str, plural: &str) -> String {
    format!("{number} {}", if number == 1 { singular } else { plural })
}

fn push_history(history: &mut VecDeque<u64>, value: u64) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}

/// Draws as many of the newest samples as fit; the newest is at the right.
fn draw_sparkline(frame: &mut Frame<'_>, area: Rect, history: &VecDeque<u64>) {
    let first = history.len().saturating_sub(usize::from(area.width));
    let data: Vec<u64> = history.iter().skip(first).copied().collect();
    frame.render_widget(Sparkline::default().data(data), area);
}

/// Formats the newest `width` samples as text for a table cell; the newest is at the right.
fn format_sparkline(history: &VecDeque<u64>, width: usize) -> String {
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

    /// Draws the view of this process, which has opened `pages`, and returns the screen's text.
    fn draw_screen(width: u16, pages: &[StatsPage]) -> String {
        let rows = processes::endpoints_of(std::process::id())
            .into_iter()
            .map(|stats| {
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
        let empty = draw_screen(80, &[]);
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
        let text = draw_screen(80, &pages);
        for expected in [
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
            assert!(text.contains(expected), "{text}\nlacks {expected}");
        }
        // The view is less readable on narrow terminals, but drawing succeeds.
        for width in [120, 60, 20, 3] {
            draw_screen(width, &pages);
        }
    }
}
