//! SQLite for `AshAgent.Store.SQLite`: two threads with a connection each run statements and answer by messages, so
//! that no scheduler of the VM waits for a disk. Which statements, and what they mean, is Elixir's.

use std::cell::RefCell;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::Value as Cell;
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement};
use rustler::{
    Atom, Binary, Encoder, Env, Error, LocalPid, NewBinary, NifMap, NifResult, NifUnitEnum,
    OwnedEnv, Reference, Resource, ResourceArc, Term,
};

mod words;

mod atoms {
    rustler::atoms! {
        ash_agent_sqlite, ok, error, busy, disk_full, read_only, corrupt, cannot_open, io, too_big, closed, sqlite, nil,
    }
}

/// Parameters and bytes of them that a normal scheduler copies in well under a millisecond.
const NORMAL: Limits = Limits {
    params: 2_000,
    bytes: 128 * 1024,
};

/// The limits of what a dirty scheduler copies.
const ALL: Limits = Limits {
    params: usize::MAX,
    bytes: usize::MAX,
};

#[derive(Clone, Copy)]
struct Limits {
    params: usize,
    bytes: usize,
}

/// Jobs that share a transaction, and with it one wait for the disk, when they wait already.
const TOGETHER: usize = 64;

/// Statements that a connection keeps ready.
const PREPARED: usize = 64;

/// A database, open until nobody holds it.
struct Database {
    writer: Sender<Job>,
    /// None for one in memory, which a second connection would not see.
    reader: Option<Sender<Job>>,
}

#[rustler::resource_impl]
impl Resource for Database {}

/// The handle that Elixir holds.
type Store = ResourceArc<Database>;

#[derive(NifMap)]
struct Settings {
    in_memory: bool,
    /// Says whether a commit waits until the disk has it.
    full: bool,
    busy_timeout: u64,
    max_pages: i64,
}

#[derive(NifUnitEnum, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Read,
    Write,
    /// Statements of the schema, as they stand.
    Script,
}

/// Statements to run in one transaction. The first is a guard: when it gives no row, nothing happens.
struct Job {
    mode: Mode,
    statements: Vec<String>,
    /// The values of `$1`, `$2`, ... in all statements.
    params: Arc<[String]>,
    reply: Reply,
}

thread_local! {
    /// The parameters of the job that this thread runs.
    static PARAMS: RefCell<Arc<[String]>> = RefCell::default();
}

type Rows = Vec<Vec<Cell>>;

/// The rows of each statement.
type Answer = Vec<Rows>;

/// Why a job failed: a word and SQLite's number. Its message is not told, since nobody knows what it shows.
#[derive(Clone, Copy)]
struct Failure(Atom, i32);

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        let of = match &error {
            rusqlite::Error::SqliteFailure(of, _) => of,
            // A path with a NUL.
            rusqlite::Error::NulError(_) => return Self(atoms::cannot_open(), 0),
            _ => return Self(atoms::sqlite(), 0),
        };
        let word = match of.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => atoms::busy(),
            ErrorCode::DiskFull => atoms::disk_full(),
            ErrorCode::ReadOnly => atoms::read_only(),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => atoms::corrupt(),
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied => atoms::cannot_open(),
            ErrorCode::SystemIoFailure => atoms::io(),
            ErrorCode::TooBig => atoms::too_big(),
            _ => atoms::sqlite(),
        };
        Self(word, of.extended_code)
    }
}

impl Encoder for Failure {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        (self.0, self.1).encode(env)
    }
}

/// Answers once, whatever becomes of the job.
struct Reply {
    to: LocalPid,
    /// The reference that the caller waits for, in an environment of its own.
    reference: Option<(OwnedEnv, rustler::env::SavedTerm)>,
}

impl Reply {
    fn send(mut self, answer: &Result<Answer, Failure>) {
        self.answer(answer);
    }

    fn answer(&mut self, answer: &Result<Answer, Failure>) {
        let Some((mut env, reference)) = self.reference.take() else {
            return;
        };
        // An error says that the caller is gone.
        let _ = env.send_and_clear(&self.to, |env| {
            let reference = reference.load(env);
            let answer = match answer {
                Ok(answer) => {
                    let rows = answer.iter().map(|rows| encode_rows(env, rows));
                    (atoms::ok(), rows.collect::<Vec<_>>()).encode(env)
                }
                Err(failure) => (atoms::error(), failure).encode(env),
            };
            (atoms::ash_agent_sqlite(), reference, answer)
        });
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.answer(&Err(Failure(atoms::closed(), 0)));
    }
}

fn encode_rows<'a>(env: Env<'a>, rows: &Rows) -> Term<'a> {
    let row = |row: &Vec<Cell>| {
        row.iter()
            .map(|cell| encode_cell(env, cell))
            .collect::<Vec<_>>()
    };
    rows.iter().map(row).collect::<Vec<_>>().encode(env)
}

fn encode_cell<'a>(env: Env<'a>, cell: &Cell) -> Term<'a> {
    match cell {
        Cell::Null => atoms::nil().encode(env),
        Cell::Integer(number) => number.encode(env),
        Cell::Real(number) => number.encode(env),
        Cell::Text(text) => NewBinary::from_slice(env, text.as_bytes()).into(),
        Cell::Blob(bytes) => NewBinary::from_slice(env, bytes).into(),
    }
}

/// Makes the file where there is none.
#[rustler::nif(schedule = "DirtyIo")]
fn open(path: &str, settings: Settings) -> Result<ResourceArc<Database>, Failure> {
    let writer = connect(path, &settings)?;
    let reader = match settings.in_memory {
        true => None,
        false => {
            let reader = connect(path, &settings)?;
            reader.pragma_update(None, "query_only", true)?;
            Some(start("sqlite_read", reader)?)
        }
    };
    let writer = start("sqlite_write", writer)?;
    Ok(ResourceArc::new(Database { writer, reader }))
}

fn connect(path: &str, settings: &Settings) -> Result<Connection, Failure> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match settings.in_memory {
        true => Connection::open_in_memory_with_flags(flags)?,
        false => Connection::open_with_flags(Path::new(path), flags)?,
    };
    connection.busy_timeout(Duration::from_millis(settings.busy_timeout))?;
    connection.set_prepared_statement_cache_capacity(PREPARED);
    // Deleted content is overwritten.
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update_and_check(None, "max_page_count", settings.max_pages, |_| Ok(()))?;
    // The first that reads the file: it answers with the mode.
    connection.query_row("pragma journal_mode = wal", [], |_| Ok(()))?;
    let synchronous = if settings.full { "full" } else { "normal" };
    connection.pragma_update(None, "synchronous", synchronous)?;
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_aggregate_function("index_of", 2, flags, words::IndexOf)?;
    connection.create_scalar_function("words_of", 1, flags, words::words_of)?;
    connection.create_scalar_function("filters_of", 1, flags, words::filters_of)?;
    connection.create_scalar_function("places_of", 2, flags, words::places_of)?;
    connection.create_scalar_function("may_have", 2, flags, may_have)?;
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function("text_at", 2, flags, text_at)?;
    Ok(connection)
}

/// `text_at(at, size)`: so many bytes of the third parameter, the first of which is 1. Bound, SQLite would copy it whole, and once more as bytes.
fn text_at(context: &Context<'_>) -> rusqlite::Result<Option<String>> {
    let at: Option<i64> = context.get(0)?;
    let size: Option<i64> = context.get(1)?;
    Ok(PARAMS.with_borrow(|params| {
        let (start, size) = (usize::try_from(at?.checked_sub(1)?), usize::try_from(size?));
        let (_, rest) = params.get(2)?.split_at_checked(start.ok()?)?;
        let (text, _) = rest.split_at_checked(size.ok()?)?;
        Some(text.to_owned())
    }))
}

/// `may_have(document, query)`: false where JSON has not all words of a query. They may be parts of its words.
fn may_have(context: &Context<'_>) -> rusqlite::Result<bool> {
    let document = context.get_raw(0).as_str()?;
    let query = fold(context.get_raw(1).as_str()?);
    let folded = fold(document);
    let mut words = query.split(['"', ' ']);
    // Any letter may be written as a number.
    Ok(words.all(|word| folded.contains(word)) || document.contains("\\u"))
}

/// All forms of a letter that FTS5 takes for the same are the same, whatever stands around them.
fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let upper = |char: char| char.to_lowercase().flat_map(char::to_uppercase);
    let lower = |char: char| upper(char).flat_map(char::to_lowercase);
    text.chars().flat_map(lower).collect()
}

fn start(name: &str, connection: Connection) -> Result<Sender<Job>, Failure> {
    let (sender, jobs) = mpsc::channel();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || work(&connection, &jobs))
        .map_err(|_| Failure(atoms::io(), 0))?;
    Ok(sender)
}

/// Hands statements to their thread. The answer comes as a message,
/// `{:ash_agent_sqlite, reference, {:ok, [rows]} | {:error, {word, code}}}`. False says that there is more to copy than a
/// normal scheduler should: then nothing happened, and `run_dirty` does it.
#[rustler::nif]
fn run_normal(
    env: Env<'_>,
    database: Store,
    job: (Mode, Reference<'_>),
    statements: Vec<String>,
    params: Term<'_>,
) -> NifResult<bool> {
    hand_over(env, &database, job, statements, params, NORMAL)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn run_dirty(
    env: Env<'_>,
    database: Store,
    job: (Mode, Reference<'_>),
    statements: Vec<String>,
    params: Term<'_>,
) -> NifResult<bool> {
    hand_over(env, &database, job, statements, params, ALL)
}

fn hand_over(
    env: Env<'_>,
    database: &Database,
    (mode, reference): (Mode, Reference<'_>),
    statements: Vec<String>,
    params: Term<'_>,
    limits: Limits,
) -> NifResult<bool> {
    let Some(params) = copy(params, limits)? else {
        return Ok(false);
    };
    let own = OwnedEnv::new();
    let saved = own.save(Term::from(reference));
    let job = Job {
        mode,
        statements,
        params: params.into(),
        reply: Reply {
            to: env.pid(),
            reference: Some((own, saved)),
        },
    };
    let thread = match (mode, &database.reader) {
        (Mode::Read, Some(reader)) => reader,
        _ => &database.writer,
    };
    // A job that nobody takes answers as it is dropped.
    let _ = thread.send(job);
    Ok(true)
}

/// None where there is more than the limits.
fn copy(terms: Term<'_>, limits: Limits) -> NifResult<Option<Vec<String>>> {
    if terms.list_length()? > limits.params {
        return Ok(None);
    }
    let texts: Vec<Binary<'_>> = terms.decode()?;
    let bytes = texts.iter().map(|text| text.len());
    if bytes.fold(0, usize::saturating_add) > limits.bytes {
        return Ok(None);
    }
    let own = |text: Binary<'_>| String::from_utf8(text.to_vec()).map_err(|_| Error::BadArg);
    texts
        .into_iter()
        .map(own)
        .collect::<NifResult<_>>()
        .map(Some)
}

/// Lives as long as somebody may send jobs.
fn work(connection: &Connection, jobs: &Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        if first.mode == Mode::Write {
            let more = jobs.try_iter().take(TOGETHER);
            let (together, other): (Vec<Job>, Vec<Job>) = std::iter::once(first)
                .chain(more)
                .partition(|job| job.mode == Mode::Write);
            write(connection, together);
            other.into_iter().for_each(|job| alone(connection, job));
        } else {
            alone(connection, first);
        }
    }
}

fn alone(connection: &Connection, job: Job) {
    let answer = match job.mode {
        Mode::Script => script(connection, &job.statements),
        _ => run(connection, &job),
    };
    job.reply.send(&answer);
}

fn script(connection: &Connection, statements: &[String]) -> Result<Answer, Failure> {
    let done = statements
        .iter()
        .try_for_each(|statement| connection.execute_batch(statement));
    if !connection.is_autocommit() {
        let _ = connection.execute_batch("rollback");
    }
    done?;
    Ok(Answer::new())
}

/// Runs jobs in one transaction, each as if it were alone: what one does is undone alone.
fn write(connection: &Connection, jobs: Vec<Job>) {
    let answers = transaction(connection, &jobs);
    match answers {
        Ok(answers) => {
            for (job, answer) in jobs.into_iter().zip(answers) {
                job.reply.send(&answer);
            }
        }
        Err(failure) => {
            if !connection.is_autocommit() {
                let _ = connection.execute_batch("rollback");
            }
            for job in jobs {
                job.reply.send(&Err(failure));
            }
        }
    }
}

fn transaction(
    connection: &Connection,
    jobs: &[Job],
) -> Result<Vec<Result<Answer, Failure>>, Failure> {
    connection.execute_batch("begin immediate")?;
    let mut answers = Vec::new();
    for job in jobs {
        connection.execute_batch("savepoint job")?;
        let answer = run(connection, job);
        // A full disk and the like end the whole transaction.
        if let (Err(failure), true) = (&answer, connection.is_autocommit()) {
            return Err(*failure);
        }
        if !matches!(&answer, Ok(answer) if answer.first().is_some_and(|guard| !guard.is_empty())) {
            connection.execute_batch("rollback to job")?;
        }
        connection.execute_batch("release job")?;
        answers.push(answer);
    }
    connection.execute_batch("commit")?;
    Ok(answers)
}

fn run(connection: &Connection, job: &Job) -> Result<Answer, Failure> {
    PARAMS.set(Arc::clone(&job.params));
    let answer = run_all(connection, job);
    PARAMS.take();
    answer
}

fn run_all(connection: &Connection, job: &Job) -> Result<Answer, Failure> {
    let mut answer = Answer::new();
    for statement in &job.statements {
        let mut prepared = connection.prepare_cached(statement)?;
        let rows = query(&mut prepared, &job.params)?;
        let refused = answer.is_empty() && rows.is_empty();
        answer.push(rows);
        if refused {
            break;
        }
    }
    Ok(answer)
}

fn query(statement: &mut Statement<'_>, params: &[String]) -> Result<Rows, Failure> {
    for (position, param) in params.iter().enumerate() {
        let name = format!("${}", position.saturating_add(1));
        if let Some(index) = statement.parameter_index(&name)? {
            statement.raw_bind_parameter(index, param)?;
        }
    }
    let columns = statement.column_count();
    let mut found = statement.raw_query();
    let mut rows = Rows::new();
    while let Some(row) = found.next()? {
        let cells: rusqlite::Result<Vec<Cell>> =
            (0..columns).map(|column| row.get(column)).collect();
        rows.push(cells?);
    }
    Ok(rows)
}

rustler::init!("Elixir.AshAgent.Store.SQLite.Native");
