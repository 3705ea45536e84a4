//! Copying from file to file: in the kernel where possible, else through a buffer.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;

/// The most bytes of one system call.
const CHUNK: u64 = 8 << 20;

/// The size of the buffer.
const BUFFER: usize = 1 << 20;

/// Methods of copying, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Within a file system and between some.
    CopyFileRange,
    /// From files that can be mapped.
    Sendfile,
    Buffer,
}

/// The methods of this system.
pub(super) const METHODS: &[Method] = if cfg!(target_os = "linux") {
    &[Method::CopyFileRange, Method::Sendfile, Method::Buffer]
} else {
    &[Method::Buffer]
};

/// Writes a range of one file at the position of another by the first method that works; where one
/// fails, the next continues.
pub(super) fn copy(
    from: &File,
    range: Range<u64>,
    to: &File,
    methods: &[Method],
) -> io::Result<()> {
    let mut at = range.start;
    let mut methods = methods.iter().copied().peekable();
    while at < range.end {
        let Some(method) = methods.peek() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let len = (range.end - at).min(CHUNK);
        let moved = match method {
            Method::CopyFileRange => kernel::copy_file_range(from, at, to, len),
            Method::Sendfile => kernel::sendfile(from, at, to, len),
            Method::Buffer => return through_buffer(from, at..range.end, to),
        };
        match moved {
            Ok(moved) if moved > 0 => at += moved,
            // The last method reports the error.
            _ => drop(methods.next()),
        }
    }
    Ok(())
}

fn through_buffer(from: &File, range: Range<u64>, mut to: &File) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut at = range.start;
    while at < range.end {
        let len = usize::try_from(range.end - at).map_or(BUFFER, |n| n.min(BUFFER));
        match read_at(from, &mut buffer[..len], at) {
            Ok(0) => {
                let why = "the file became shorter while it was copied";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            Ok(read) => {
                to.write_all(&buffer[..read])?;
                at += read as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, at)
}

#[cfg(windows)]
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, at)
}

/// Makes `to` share the blocks of `from`, which copies it at no cost; `false` where the file system
/// cannot.
pub(super) fn reflink(from: &File, to: &File) -> bool {
    kernel::reflink(from, to)
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::fs::File;
    use std::io;

    use rustix::io::retry_on_intr;

    fn length(len: u64) -> usize {
        usize::try_from(len).unwrap_or(usize::MAX)
    }

    pub(super) fn copy_file_range(from: &File, at: u64, to: &File, len: u64) -> io::Result<u64> {
        let moved = retry_on_intr(|| {
            let mut offset = at;
            rustix::fs::copy_file_range(from, Some(&mut offset), to, None, length(len))
        });
        Ok(moved? as u64)
    }

    pub(super) fn sendfile(from: &File, at: u64, to: &File, len: u64) -> io::Result<u64> {
        let moved = retry_on_intr(|| {
            let mut offset = at;
            rustix::fs::sendfile(to, from, Some(&mut offset), length(len))
        });
        Ok(moved? as u64)
    }

    pub(super) fn reflink(from: &File, to: &File) -> bool {
        rustix::fs::ioctl_ficlone(to, from).is_ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use std::fs::File;
    use std::io;

    pub(super) fn copy_file_range(_: &File, _: u64, _: &File, _: u64) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn sendfile(_: &File, _: u64, _: &File, _: u64) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn reflink(_: &File, _: &File) -> bool {
        false
    }
}
