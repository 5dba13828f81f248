//! Files of a form, read as they come. The form's parser buffers what it is given until it parses it: it gets
//! no more while enough is buffered, and the form is broken off when it parses nothing of that.

use std::{
    error::Error as _,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use futures::{Stream, stream};
use multer::{Field, Multipart};

use super::{PIECE_BYTES, encoding::DecodedBody};
use crate::error::E2bError;

/// Bytes that the parser buffers at most, together with all that has stood between the files.
const MOST_UNTAKEN: usize = 4 * PIECE_BYTES;

/// See the module.
pub(super) struct FormFiles {
    form: Multipart<'static>,
    read: Arc<FormProgress>,
}

/// A file of the form.
pub(super) struct FormFile<'f> {
    field: Field<'static>,
    read: &'f FormProgress,
}

/// Progress of the parser.
#[derive(Debug, Default)]
struct FormProgress {
    /// Bytes that the parser was given, less those of files that it returned.
    untaken: AtomicUsize,
    /// True when the parser has got on, or was given more, since the last look.
    moved: AtomicBool,
}

impl FormProgress {
    fn took(&self, bytes: usize) {
        self.untaken.fetch_sub(bytes, Relaxed);
        self.moved.store(true, Relaxed);
    }
}

impl FormFiles {
    pub(super) fn new(content: DecodedBody, boundary: String) -> Self {
        let read = Arc::default();
        let form = Multipart::new(parts(content, Arc::clone(&read)), boundary);
        Self { form, read }
    }

    /// The next file; `None` at the end. Other fields of the form are passed over.
    ///
    /// # Errors
    /// For a form that breaks off or is not valid.
    pub(super) async fn next(&mut self) -> Result<Option<FormFile<'_>>, E2bError> {
        loop {
            let Some(field) = self.form.next_field().await.map_err(|error| broken(&error))? else {
                return Ok(None);
            };
            self.read.took(0);
            let mut file = FormFile { field, read: &self.read };
            if file.field.name() == Some("file") {
                return Ok(Some(file));
            }
            while file.piece().await?.is_some() {}
        }
    }
}

impl FormFile<'_> {
    /// The file's name in the form; empty without one.
    pub(super) fn name(&self) -> &str {
        self.field.file_name().unwrap_or_default()
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// Those of [`FormFiles::next`].
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, E2bError> {
        let piece = self.field.chunk().await.map_err(|error| broken(&error))?;
        self.read.took(piece.as_ref().map_or(0, Bytes::len));
        Ok(piece)
    }
}

/// Input of the parser.
fn parts(
    content: DecodedBody,
    read: Arc<FormProgress>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold((content, read), |(mut content, read)| async move {
        loop {
            // The parser looks at its buffer until it asks again.
            tokio::task::yield_now().await;
            if read.untaken.load(Relaxed) <= MOST_UNTAKEN {
                break;
            }
            if !read.moved.swap(false, Relaxed) {
                return Err(io::Error::other("too much stands between the files"));
            }
        }
        let part = content.part().await.map_err(|error| io::Error::other(error.message))?;
        read.untaken.fetch_add(part.as_ref().map_or(0, Bytes::len), Relaxed);
        // The parser may ask twice before it looks at its buffer.
        read.moved.store(true, Relaxed);
        Ok(part.map(|part| (part, (content, read))))
    })
}

fn broken(error: &multer::Error) -> E2bError {
    let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    E2bError::invalid(format!("the form: {cause}"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures::StreamExt as _;

    use super::*;
    use crate::files::encoding::Decoder;

    fn form(pieces: impl Stream<Item = Bytes> + Send + 'static) -> FormFiles {
        let body = Body::from_stream(pieces.map(Ok::<_, io::Error>));
        FormFiles::new(DecodedBody::new(body, Decoder::Plain), "b".to_owned())
    }

    #[tokio::test]
    async fn what_is_no_file_is_not_held_without_a_bound() {
        for begun in ["--b\r\nX-Endless: ", "no form: "] {
            let given = Arc::new(AtomicUsize::new(0));
            let counted = given.clone();
            let endless = stream::repeat(Bytes::from(vec![b'x'; 100_000])).inspect(move |piece| {
                counted.fetch_add(piece.len(), Relaxed);
            });
            let begun = stream::iter([Bytes::from_static(begun.as_bytes())]);
            let refused = form(begun.chain(endless)).next().await.err().expect("refused").message;
            assert!(refused.contains("between the files"), "{refused}");
            assert!(given.load(Relaxed) < MOST_UNTAKEN + 200_000);
        }
    }

    #[tokio::test]
    async fn files_of_any_number_and_length_are_read() {
        let part = |name: &str, content: &str| {
            format!(
                "--b\r\nContent-Disposition: form-data; name={name}; filename=f\r\n\r\n{content}\r\n"
            )
        };
        let long = "l".repeat(2 * MOST_UNTAKEN);
        let small = part("file", "small").repeat(500);
        let whole = [&small, &part("other", &long), &part("file", &long), &small, "--b--\r\n"];
        let whole = Bytes::from(whole.concat());
        for step in [10_000, whole.len()] {
            let cut = |at: usize| whole.slice(at..(at + step).min(whole.len()));
            let pieces: Vec<_> = (0..whole.len()).step_by(step).map(cut).collect();
            let (mut form, mut files, mut bytes) = (form(stream::iter(pieces)), 0, 0);
            while let Some(mut file) = form.next().await.expect("a form") {
                assert_eq!(file.name(), "f");
                files += 1;
                while let Some(piece) = file.piece().await.expect("a file") {
                    bytes += piece.len();
                }
            }
            assert_eq!((files, bytes), (1_001, 5_000 + long.len()), "{step}");
        }
    }
}
