"""The paper's experimental section, regenerated and judged. See README.md."""
