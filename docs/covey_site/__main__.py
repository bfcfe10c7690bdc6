"""What `make docs` calls before Sphinx and after it."""

import sys
from pathlib import Path

from covey_site.assemble import assemble
from covey_site.check import problems
from covey_site.versions import PAGE, versions_page

STEP, FOLDER = sys.argv[1], Path(sys.argv[2])

if STEP == "assemble":
    assemble(FOLDER)
elif STEP == "versions":
    (FOLDER / PAGE).write_text(versions_page(FOLDER))
elif found := problems(FOLDER):
    sys.exit("\n".join(found))
