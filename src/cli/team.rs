//! `hivekeep team`, and the terminal that it watches a team on: given back as it was, whatever happens.

mod board;
mod feed;
mod view;

use std::{
    io::{self, IsTerminal},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::{board::Board, feed::FeedMessage};
use super::{CliContext, CommandFailure, output, reach::DaemonReach};

/// Watch a team of workspaces.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Watch(Watch),
}

/// Show a team's members, their messages and their tasks as they move.
///
/// Any team can be watched, whichever session made it. Nothing is taken out of an inbox, and what
/// messages and tasks say is not shown. `q` or Ctrl-C leaves.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep team watch crew
  hivekeep team watch crew --once   # a picture as text, as when standard output is no terminal")]
struct Watch {
    /// The team's name.
    name: String,
    /// Print one picture as text and leave.
    #[arg(long)]
    once: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let Action::Watch(Watch { name, once }) = args.action;
    let reach = context.reach(&context.load()?);
    if once || !io::stdout().is_terminal() {
        return Ok(output::text(&view::text(&feed::once(&reach, &name)?))?);
    }
    live(reach, name)
}

/// Bound of updates that wait to be shown; at the bound, the feed waits.
const WAITING: usize = 1_024;
/// Interval at which signals are checked.
const TICK: Duration = Duration::from_millis(100);

/// Events that change the picture.
enum Turn {
    Feed(FeedMessage),
    /// A key, or another size.
    Input(Event),
    /// There is no more input.
    Deaf(io::Error),
}

impl From<FeedMessage> for Turn {
    fn from(message: FeedMessage) -> Self {
        Self::Feed(message)
    }
}

/// Shows the team until the person leaves.
///
/// # Errors
/// When there is no such team, or the terminal cannot be used.
fn live(reach: DaemonReach, name: String) -> Result<(), CommandFailure> {
    let (turns, coming) = sync_channel(WAITING);
    // First, so that an error is printed on a terminal as it was.
    feed::follow(reach, name, turns.clone())?;
    let signal = signals()?;
    let mut board = Board::default();
    {
        let mut screen = Screen::open()?;
        thread::spawn(move || listen(&turns));
        while signal.load(SeqCst) == 0 {
            match coming.recv_timeout(TICK) {
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(turn) => {
                    // All that is there, then one picture.
                    let waiting = std::iter::once(turn).chain(coming.try_iter().take(WAITING));
                    if leaves(&mut board, waiting)? {
                        break;
                    }
                }
            }
            screen.0.draw(|frame| frame.render_widget(&board, frame.area()))?;
        }
    }
    match signal.load(SeqCst) {
        0 => Ok(()),
        // The terminal is as it was: end the way the signal wants.
        number => {
            let number = i32::try_from(number).expect("a signal's number is small");
            Ok(signal_hook::low_level::emulate_default_handler(number)?)
        }
    }
}

fn leaves(board: &mut Board, turns: impl Iterator<Item = Turn>) -> Result<bool, CommandFailure> {
    for turn in turns {
        match turn {
            Turn::Feed(message) => board.take(message),
            Turn::Input(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
                    KeyCode::Char('c') if control => return Ok(true),
                    _ => {}
                }
            }
            // Drawing asks for the size.
            Turn::Input(_) => {}
            Turn::Deaf(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn listen(turns: &SyncSender<Turn>) {
    loop {
        let (turn, last) = match event::read() {
            Ok(input) => (Turn::Input(input), false),
            Err(error) => (Turn::Deaf(error), true),
        };
        if turns.send(turn).is_err() || last {
            return;
        }
    }
}

/// The number of the signal that came; 0 for none.
fn signals() -> io::Result<Arc<AtomicUsize>> {
    let came = Arc::new(AtomicUsize::new(0));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let number = usize::try_from(signal).expect("a signal's number is positive");
        signal_hook::flag::register_usize(signal, came.clone(), number)?;
    }
    Ok(came)
}

/// The terminal while it is ours.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Self> {
        // A panic gives the terminal back before its message is printed.
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
