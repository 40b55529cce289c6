"""What edgeperf puts on a system beside itself: units, udev rules, the board's file.

Data and two shell scripts, no code: ``deploy/install.sh`` uses them from a checkout,
``edgeperf service`` from an installed package.
"""
