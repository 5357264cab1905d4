//! Merges between levels.
