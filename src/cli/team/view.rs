//! A board as a picture of a terminal. Pure: the same board in the same area is the same picture.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line as Text, Span},
    widgets::{Block, Borders, Cell, Paragraph, Row, Table, Widget},
};

use super::board::{Board, Member};

/// Columns of a picture that is printed.
const PRINTED_COLUMNS: u16 = 120;
/// Lines of recent events in a picture that is printed.
const PRINTED_LINES: usize = 20;
/// Rows of a picture whose board is larger than any terminal.
const MOST_ROWS: u16 = 1_000;

const HEAD: [&str; 8] =
    ["MEMBER", "ROLE", "STATE", "ADDRESS", "INBOX", "RUNNING", "QUEUED", "WORKSPACE"];
/// The column of a member's state, which is painted.
const STATE: usize = 2;
const LAST: usize = HEAD.len() - 1;
/// Title, column heads, the last line; and a border above what happened.
const FRAME_ROWS: u16 = 4;

const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

impl Widget for &Board {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let members = rows(self.members.len()).saturating_add(1);
        let [title, table, happened, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(members),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .areas(area);
        self.title().render(title, buffer);
        self.table().render(table, buffer);
        self.happened(happened, buffer);
        self.foot().render(foot, buffer);
    }
}

impl Board {
    fn title(&self) -> Text<'_> {
        let (members, waiting) = (self.members.len(), self.waiting());
        let told = format!(
            "  {}, {}, {}",
            counted(members, "member", "members"),
            counted(waiting, "message waits", "messages wait"),
            counted(self.running(), "task runs", "tasks run")
        );
        Text::from(vec![
            Span::styled(format!("team {}", self.name), Modifier::BOLD),
            Span::raw("  "),
            Span::styled(self.state.as_str(), painted(&self.state)),
            Span::styled(told, FAINT),
        ])
    }

    fn table(&self) -> Table<'_> {
        let head = Row::new(HEAD).style(FAINT);
        let cells: Vec<_> = self.members.iter().map(cells).collect();
        // Columns are as wide as needed; the last one has the rest.
        let width = |column: usize| {
            let cells =
                cells.iter().map(|row: &[String; HEAD.len()]| Span::raw(&row[column]).width());
            rows(cells.chain([HEAD[column].len()]).max().unwrap_or_default())
        };
        let widths = std::array::from_fn::<_, { HEAD.len() }, _>(|column| match column {
            LAST => Constraint::Min(width(LAST)),
            column => Constraint::Length(width(column)),
        });
        let row = |cells: [String; HEAD.len()], member: &Member| {
            let status = painted(&member.status);
            let mut cells = cells.map(Cell::from);
            cells[STATE] = std::mem::take(&mut cells[STATE]).style(status);
            Row::new(cells)
        };
        let rows: Vec<_> =
            cells.iter().zip(&self.members).map(|(cells, one)| row(cells.clone(), one)).collect();
        Table::new(rows, widths).header(head).column_spacing(2)
    }

    fn happened(&self, area: Rect, buffer: &mut Buffer) {
        let block = Block::new().borders(Borders::TOP).border_style(FAINT);
        let inside = block.inner(area);
        block.render(area, buffer);
        let from = self.lines.len().saturating_sub(usize::from(inside.height));
        let wide = self.members.iter().map(|one| Span::raw(&one.name).width());
        let wide = wide.max().unwrap_or_default().max("team".len());
        let lines = self.lines.iter().skip(from).map(|line| {
            Text::from(vec![
                Span::styled(format!("{}  ", line.time), FAINT),
                Span::raw(format!("{:wide$}  ", line.who)),
                Span::raw(line.what.as_str()),
            ])
        });
        Paragraph::new(lines.collect::<Vec<_>>()).render(inside, buffer);
    }

    fn foot(&self) -> Text<'_> {
        match &self.away {
            Some(why) => Text::styled(format!("away: {why}"), Color::Red),
            None => Text::styled("q leaves", FAINT),
        }
    }
}

fn cells(member: &Member) -> [String; HEAD.len()] {
    let state = match &member.reason {
        Some(reason) => format!("{}: {reason}", member.status),
        None => member.status.clone(),
    };
    let inbox = member.inbox.as_ref().map_or_else(|| "?".to_owned(), |ids| ids.len().to_string());
    let address = member.address.clone().unwrap_or_else(|| "-".to_owned());
    let (running, queued) = match member.tasks {
        Some((running, queued)) => (running.to_string(), queued.to_string()),
        None => ("?".to_owned(), "?".to_owned()),
    };
    let (name, role, workspace) =
        (member.name.clone(), member.role.clone(), member.workspace.clone());
    [name, role, state, address, inbox, running, queued, workspace]
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The colour of a state's word.
fn painted(word: &str) -> Style {
    let colour = match word {
        "ready" => Color::Green,
        "working" => Color::Cyan,
        "failed" | "destroyed" | "undone" => Color::Red,
        _ => Color::Yellow,
    };
    Style::new().fg(colour)
}

fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(MOST_ROWS).min(MOST_ROWS)
}

/// The picture as text, without colours and without the last line, which speaks of keys.
pub(super) fn text(board: &Board) -> String {
    let height = rows(board.members.len() + board.lines.len().min(PRINTED_LINES)) + FRAME_ROWS;
    let area = Rect::new(0, 0, PRINTED_COLUMNS, height);
    let mut buffer = Buffer::empty(area);
    board.render(area, &mut buffer);
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(PRINTED_COLUMNS)).take(usize::from(height) - 1) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
