// What the standard streams are connected to.
#pragma once

namespace onw {

enum class Stream : int { in = 0, out = 1, err = 2 };

bool is_terminal(Stream stream);

// Whether a line of a few kB can be written now without waiting for whoever reads at the other end.
bool takes_a_line(Stream stream);

// Whether the end of the input was typed on a terminal (Ctrl-D) and is all that waits to be read.
bool end_waits(Stream stream);

// Waits until there is something to read, or the end; false where `milliseconds` pass without.
bool comes_within(Stream stream, int milliseconds);

// Columns of the terminal behind stderr; 80 where there is none.
int terminal_columns();

}  // namespace onw
